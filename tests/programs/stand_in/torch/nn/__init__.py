from .modules.module import Module  # noqa: F401


class Parameter:
    """A parameter."""
