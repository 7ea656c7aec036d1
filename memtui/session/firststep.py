"""What the first training step takes before its optimizer runs: all that can be known before the state appears."""

from __future__ import annotations

from typing import Optional

from memtui.wire.frames import DeviceFrame, Frame

#: What is allocated then says nothing of where the step is: they may fall into any part of it.
_ASIDE = ("evaluation", "checkpoint", "compilation")


class FirstStep:
    """One device during the first step, up to the start of its optimizer. Bytes."""

    def __init__(self) -> None:
        self.step: Optional[int] = None  # steps completed when it was first seen: 0 where its beginning was
        self.base_bytes: Optional[int] = None  # allocated when its first forward began: what is there for good
        self.allocated_bytes: Optional[int] = None  # newest before the optimizer: with the gradients, after backward
        self.peak_bytes: Optional[int] = None  # highest before the optimizer
        self.peak_exact = False
        self.backward_bytes: Optional[int] = None  # allocated when its first backward began
        self.forward_peak_bytes = 0  # highest before that
        self.largest_activation_bytes: Optional[int] = None
        self.gradient_bytes: Optional[int] = None  # when the first optimizer started
        self.state_bytes = 0  # of optimizers, that was there before: made by a constructor, or loaded
        self.passes = 0  # backward passes that were seen to begin
        self.backward_ended = False  # else the peak may be still to come
        self.optimizer_started = False
        self._phase = ""  # of the frame before

    def add(self, frame: Frame, device: DeviceFrame) -> None:
        """Takes in a frame of the first step; those after the optimizer's start change nothing."""
        at_start = frame.boundary == "optimizer_start"
        if frame.phase in _ASIDE:
            return
        if device.allocated_bytes is None or self.optimizer_started:
            return
        self.step = frame.step if self.step is None else self.step
        if frame.step != self.step:
            self.optimizer_started = True  # it is over, and nothing was sampled in its optimizer
            return
        if frame.phase == "optimizer" and not at_start:
            self.optimizer_started = True  # its start was not sampled: the newest frame before it has to do
            return
        if frame.phase == "startup":
            self.base_bytes = device.allocated_bytes
            return
        if self.base_bytes is None or (frame.boundary == "forward_start" and self.peak_bytes is None):
            self.base_bytes = device.allocated_bytes
        self.allocated_bytes = device.allocated_bytes
        if device.classification is not None and device.classification.phase != "optimizer":
            self.state_bytes = max(self.state_bytes, device.classification.categories.get("optimizer_state", 0))
        seen = [self.peak_bytes, device.allocated_bytes, device.step_peak_bytes]
        self.peak_bytes = max(value for value in seen if value is not None)
        self.peak_exact = device.step_peak_exact and device.step_peak_bytes == self.peak_bytes
        self.passes += frame.boundary == "backward_start"
        if frame.boundary == "backward_start" and self.backward_bytes is None and device.classification is not None:
            self.backward_bytes, self.forward_peak_bytes = device.allocated_bytes, self.peak_bytes
            self.largest_activation_bytes = device.classification.largest_activation_bytes
        # No boundary is told of at a backward pass's end: the frames after it are the first to know.
        passed = self._phase == "backward" and frame.phase != "backward"
        self.backward_ended = self.backward_ended or at_start or passed or frame.boundary == "backward_end"
        self._phase = frame.phase
        self.optimizer_started = at_start
        if at_start and device.classification is not None and device.classification.phase == "optimizer":
            self.gradient_bytes = device.classification.categories.get("gradients", 0)
