"""Batches of other sizes: the size of each block of a step from several recorded steps, and the step done again so."""
