"""The functions of the target's own Python that are called in it."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from typing import Optional

from .errors import InjectError
from .evaluation import Evaluation, find_evaluation
from .image import Image, python_bases
from .maps import Mapping
from .memory import Memory


@dataclass(frozen=True)
class Python:
    """Addresses."""

    add: int  # Py_AddPendingCall
    initialized: int  # Py_IsInitialized
    new_dictionary: int
    run: int  # PyRun_StringFlags
    release: int  # Py_DecRef
    version: Optional[tuple[int, int]] = None  # from 3.11 on
    evaluation: Optional[Evaluation] = None


_NAMES = ("Py_AddPendingCall", "Py_IsInitialized", "PyDict_New", "PyRun_StringFlags", "Py_DecRef")


def find_python(pid: int, memory: Memory, mappings: list[Mapping]) -> Python:
    """In the executable, or in libpython; raises InjectError where neither exports them."""
    for base in python_bases(pid, mappings):
        with contextlib.suppress(OSError, ValueError, struct.error):
            image = Image(memory, base)
            found = [image.symbol(name) for name in _NAMES]
            add, initialized, new_dictionary, run, release = found
            if add and initialized and new_dictionary and run and release:
                return Python(
                    add, initialized, new_dictionary, run, release, _version(image, memory), find_evaluation(image)
                )
    raise InjectError("its executable exports no CPython: another Python, or one that was stripped of its symbols")


def _version(image: Image, memory: Memory) -> Optional[tuple[int, int]]:
    address = image.symbol("Py_Version")
    if address is None:
        return None
    word = memory.word(address)
    return word >> 24 & 0xFF, word >> 16 & 0xFF
