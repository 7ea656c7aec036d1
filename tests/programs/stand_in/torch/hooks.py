class Handle:
    """Takes a hook out again."""

    def __init__(self, hooks: dict, hook: object) -> None:
        self.hooks, self.id = hooks, id(self)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Takes it out."""
        self.hooks.pop(self.id, None)


def registered(hooks: dict) -> object:
    """What registers hooks in a dictionary."""
    return lambda hook: Handle(hooks, hook)
