"""What a frame says of each device: its counters, and what was found by looking at its blocks."""

from __future__ import annotations

from typing import Any, Optional

from ..wire.frames import DeviceFrame, made
from .blocks import Blocks
from .looks import Look
from .peaks import NO_STEP, HighestStep
from .readings import Reading
from .sample import Sample

#: Between steps whose free blocks are counted at every boundary; otherwise once, which is most of what frames cost.
_COUNTING_NS = 2_000_000_000


class Framing:
    """Makes the parts of frames. Fields that hold nothing are left out, as `codec.encode_frame` wants it.

    What was found by looking is text: it stays what it is from frame to frame, but for its age.
    """

    def __init__(self) -> None:
        self._latest: dict[str, Look] = {}
        self._counted: dict[str, tuple[int, Blocks]] = {}  # when they were read
        self._counting = -1, 0  # the step of the latest sample; when the latest step began that is counted throughout
        self._whole = False

    def take_in(self, looks: dict[str, Look]) -> None:
        """These are the newest."""
        self._latest.update(looks)

    def counts_whole(self, sample: Sample) -> bool:
        """Whether the free blocks are counted at each boundary of this sample's step."""
        step, since_ns = self._counting
        if sample.step != step:
            self._whole = bool(sample.looks) and sample.time_ns - since_ns >= _COUNTING_NS
            self._counting = sample.step, sample.time_ns if self._whole else since_ns
        return self._whole

    def device(
        self,
        reading: Reading,
        look: Optional[Look],
        now_ns: int,
        highest: HighestStep = NO_STEP,
        *,
        counts: bool = True,
    ) -> DeviceFrame:
        """A reading of `now_ns`; its categories are those of `look`, else of the newest.

        Counting blocks takes longer than the rest together: where `counts` is not set, a newer look is to be counted.
        """
        newest = self._latest.get(reading.device)
        look = look or newest
        figures: dict[str, Any] = {"device": reading.device, **reading.figures}
        if reading.step_peak_bytes is not None:
            figures["step_peak_bytes"] = reading.step_peak_bytes
            figures["step_peak_exact"] = reading.step_peak_exact
        if reading.last_step_peak_bytes is not None:
            figures["last_step_peak_bytes"] = reading.last_step_peak_bytes
            figures["last_step_peak_exact"] = reading.last_step_peak_exact
            figures["last_step_peak_phase"] = reading.last_step_peak_phase
            figures["last_step_peak_step"] = reading.last_step_peak_step
        if highest is not NO_STEP:
            (
                figures["highest_step_peak_bytes"],
                figures["highest_step_peak_step"],
                figures["highest_step_peak_phase"],
            ) = highest
        read = None if newest is None else newest.blocks
        if newest is not None and read is not None:
            if not counts and reading.device in self._counted:
                read.forget()
            elif not read.forgotten:
                self._counted[reading.device] = newest.time_ns, read
        counted = self._counted.get(reading.device)
        if counted is not None:
            figures["blocks"] = counted[1].text(max(0, now_ns - counted[0]))
            if figures.get("inactive_split_bytes") == 0:
                # Expandable segments report none: what their blocks say is right.
                figures["inactive_split_bytes"] = counted[1].counts()["inactive_split_bytes"]
        if look is not None and look.possible(figures.get("allocated_bytes")):
            figures["classification"] = look.text(now_ns)
        return made(DeviceFrame, figures)
