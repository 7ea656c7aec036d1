"""What the process says of itself, where asking may fail."""

from __future__ import annotations

import os
from typing import Optional


def text_of(error: BaseException) -> str:
    """An exception's own words, shortened."""
    try:
        return str(error)[:2000]
    except Exception as second:  # noqa: BLE001 - a program's exception may fail to print itself
        return f"({type(second).__name__} while printing it)"


def working_folder() -> str:
    """Where relative paths begin; "" where that folder is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def number_in(name: str) -> Optional[int]:
    """A number in the environment, without a sign; else None."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None
