from ...hooks import registered


class Module:
    """A module."""


_parameters: dict = {}
_modules: dict = {}
register_module_parameter_registration_hook = registered(_parameters)
register_module_module_registration_hook = registered(_modules)
