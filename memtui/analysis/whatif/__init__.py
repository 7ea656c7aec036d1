"""What a step would take if one thing about the training were changed."""
