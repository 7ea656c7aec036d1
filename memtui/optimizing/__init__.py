"""What an optimizer's first steps will take: its own `step`, run on tensors without memory, in a process apart."""
