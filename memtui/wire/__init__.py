"""What the agent and the viewer say to each other: frames, their codec, and where the sockets are.

Standard library only; loaded inside the training process as well as in the viewer.
"""
