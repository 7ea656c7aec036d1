"""What the interface needs of a monitor or a replay: the seam that tests fill with a made-up one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Protocol

if TYPE_CHECKING:
    from memtui.analysis.view import View
    from memtui.session.session import Session


class Feed(Protocol):
    """A source of one session: live, or a recording that can be moved through."""

    session: Session
    replay: bool
    on_change: Optional[Callable[[], None]]

    def now_ns(self) -> int:
        """The monitored machine's monotonic clock; for a replay the instant that is shown."""

    async def start(self) -> None:
        """Starts the sources; returns at once."""

    async def stop(self) -> None:
        """Stops the sources; the program goes on."""


class Recording(Feed, Protocol):
    """A feed that can be moved through time."""

    start_ns: int
    end_ns: int

    def seek(self, time_ns: int) -> None:
        """Shows the session as it was at `time_ns`, clamped to the recording."""


class Program(Protocol):
    """The running program as the interface uses it, beside the output pane, which has its own needs."""

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""

    def interrupt(self) -> None:
        """Sends it what Ctrl-C would."""

    def kill(self) -> None:
        """Ends it without asking."""


#: A session, a device and an instant to what one screen says of them.
BuildView = Callable[["Session", str, int], "View"]
