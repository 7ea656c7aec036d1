"""Runs on another machine, from memory: brings the agents of a user there to a viewer, over its own standard streams.

The standard library, the wire and the way in, and what of the sources reads /proc and the driver without psutil; it is
sent over an ssh connection and leaves nothing behind.
"""
