"""The small process between a program and its viewers: it owns the pty, drains it always, and keeps the end.

Standard library only. It is started by the viewer and outlives it.
"""
