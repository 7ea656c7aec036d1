"""The monitor's screen, and what opens over it."""
