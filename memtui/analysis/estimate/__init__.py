"""Training memory in closed form, for when there is no program to run: sizes from shapes, nothing measured."""
