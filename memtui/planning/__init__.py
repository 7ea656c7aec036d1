"""Running a training for a plan: for real, with nothing of what it does kept."""
