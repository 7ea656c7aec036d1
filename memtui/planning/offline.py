"""Switches that keep experiment trackers and hubs from sending anything, as their own documentation names them."""

from __future__ import annotations

from pathlib import Path

_SWITCHES = {
    "WANDB_MODE": "disabled",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    # `debug` would write nothing, but the newer client does not know the word, and the older one not `disabled`.
    "NEPTUNE_MODE": "offline",
    "SWANLAB_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
}


def offline_variables(scratch: Path) -> dict[str, str]:
    """Variables on top of a program's own; a tracker that can only write to a place gets one below `scratch`."""
    return {**_SWITCHES, "MLFLOW_TRACKING_URI": (scratch / "mlruns").as_uri()}
