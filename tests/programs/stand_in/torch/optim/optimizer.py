from ..hooks import registered


class Optimizer:
    """An optimizer."""


_global_optimizer_pre_hooks: dict = {}
_global_optimizer_post_hooks: dict = {}
register_optimizer_step_pre_hook = registered(_global_optimizer_pre_hooks)
register_optimizer_step_post_hook = registered(_global_optimizer_post_hooks)
