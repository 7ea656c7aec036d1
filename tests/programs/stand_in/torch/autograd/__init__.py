def _engine_run_backward(*_arguments: object) -> None:
    pass
