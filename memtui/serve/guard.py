"""How much of what an agent says is taken: what no agent of ours would send ends the connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memtui.wire import codec
from memtui.wire.frames import Event, Frame, Hello, Model

#: Of these nothing is exposed, and they may be large.
_UNWANTED = (b'{"kind":"recorded_step"', b'{"kind":"tensors"', b'{"kind":"segments"', b'{"kind":"history')
_GRAPH = b'{"kind":"backward_graph"'
_MOST_FRAME_BYTES = 256 << 10
#: Names of devices, phases and optimizers that a process may use in its life.
_MOST_NAMES = 512
_MOST_DEVICES, _MOST_CATEGORIES, _MOST_FIGURES = 64, 64, 64


def is_wanted(body: bytes) -> bool:
    """Whether a message says something that is exposed."""
    return not body.startswith(_UNWANTED)


def is_graph(body: bytes) -> bool:
    """Whether it is a backward pass's, which counts only while there is no whole step to go by."""
    return body.startswith(_GRAPH)


#: What figures that no training has, all of them of the right kind, may lead to: nobody else's are to suffer.
IMPOSSIBLE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class Guard:
    """Of one agent."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def decode(self, body: bytes) -> Any:
        """The message, without what is not needed of it; raises CodecError."""
        message = codec.decode(body)
        if isinstance(message, Frame):
            self._check(message, len(body))
        elif isinstance(message, Model):
            self._note(f"{optimizer.name} {optimizer.trainable_parameters}" for optimizer in message.optimizers)
        elif isinstance(message, Hello) and len(message.devices) > _MOST_DEVICES:
            raise codec.CodecError(f"{len(message.devices)} devices")
        elif isinstance(message, Event):
            self._note([message.device or "", message.phase])
            figures = message.figures if len(message.figures) <= _MOST_FIGURES else {}
            return replace(message, text="", failure=None, figures=figures)
        return message

    def _check(self, frame: Frame, size: int) -> None:
        if size > _MOST_FRAME_BYTES or len(frame.devices) > _MOST_DEVICES:
            raise codec.CodecError(f"a frame of {size} bytes and {len(frame.devices)} devices")
        self._note([frame.phase])
        for device in frame.devices:
            phases = (device.last_step_peak_phase, device.highest_step_peak_phase)
            self._note([device.device, *(phase for phase in phases if phase)])
            if device.classification is not None and len(device.classification.categories) > _MOST_CATEGORIES:
                raise codec.CodecError(f"{len(device.classification.categories)} categories")

    def _note(self, names: Any) -> None:
        self._names.update(names)
        if len(self._names) > _MOST_NAMES:
            raise codec.CodecError("more names than any agent tells")
