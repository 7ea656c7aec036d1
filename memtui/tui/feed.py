"""What the interface needs of a monitor or a replay: the seam that tests fill with a made-up one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memtui.analysis.view import View
    from memtui.session.members import Member
    from memtui.session.readings import DriverReading
    from memtui.session.session import Session
    from memtui.wire.histories import HistoryNews


class ExitText(Protocol):
    """How a program ended: by `code` or by `signal`; its text says it in words."""

    @property
    def code(self) -> Optional[int]:
        """What it exited with."""

    @property
    def signal(self) -> Optional[int]:
        """What killed it."""


class Program(Protocol):
    """The running program: its terminal, its signals, its end."""

    #: Hears the output, a `ProgramListener` of the sources; what came before it was set is told at once.
    listener: Any

    @property
    def pty(self) -> bool:
        """Whether it has a terminal, and so output to show."""

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as is known."""

    def interrupt(self) -> None:
        """Sends it what Ctrl-C would."""

    def kill(self) -> None:
        """Ends it without asking."""

    def send_input(self, data: bytes) -> None:
        """Types into its terminal."""

    def send_reply(self, data: bytes) -> None:
        """Answers a query it made of its terminal."""

    def resize(self, columns: int, rows: int) -> None:
        """Gives its terminal this size, in cells."""


class Feed(Protocol):
    """A source of one session: live, or a recording that can be moved through."""

    on_change: Optional[Callable[[], None]]

    @property
    def session(self) -> Session:
        """What is known; a recording has another object after each `seek`."""

    @property
    def program(self) -> Optional[Program]:
        """The program, where it was started by `memtui run`; known after `start`."""

    @property
    def replay(self) -> bool:
        """Whether this is a `Recording`."""

    def now_ns(self) -> int:
        """The monitored machine's monotonic clock; for a recording the instant that is shown."""

    def request(self, name: str) -> bool:
        """Asks the agent for something ("record", "tensors", "segments"); False where there is none to ask."""

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        """Saves the allocator's history of the next step; why not, else None, and `told` hears how it stands."""

    async def start(self) -> None:
        """Starts the sources."""

    async def stop(self) -> None:
        """Stops the sources; the program goes on."""


class Recording(Feed, Protocol):
    """A feed that can be moved through time."""

    @property
    def start_ns(self) -> int:
        """The first instant."""

    @property
    def end_ns(self) -> int:
        """The last instant."""

    def session_at(self, time_ns: int) -> Session:
        """The session as it was at `time_ns`, whatever is shown."""

    def seek(self, time_ns: int) -> None:
        """Shows the session as it was at `time_ns`, clamped to the recording."""


class RanksFeed(Feed, Protocol):
    """A feed of one of several ranks, which is chosen; of a program that has no ranks it is as any other."""

    @property
    def members(self) -> Sequence[Member]:
        """All ranks that were seen, in the order in which they came, earlier lives too."""

    @property
    def several(self) -> bool:
        """Whether there are ranks to set side by side."""

    @property
    def driver(self) -> Optional[DriverReading]:
        """What the driver said last of the devices of all."""

    @property
    def label(self) -> str:
        """What was started: the launcher and its script."""

    def choose(self, member: Member) -> None:
        """Shows this one from now on."""


class RanksRecording(RanksFeed, Recording, Protocol):
    """Several recordings that are moved through time together."""


def absent(feed: Feed, what: str) -> str:
    """Why a feed has no "tensors", "segments", recorded "step", "output", all "events" or "errors", ever; "" if it may.

    It says who has.
    """
    say: Optional[Callable[[str], str]] = getattr(feed, "absent", None)
    return "" if say is None else say(what)


#: A session, a device and an instant to what one screen says of them.
BuildView = Callable[["Session", str, int], "View"]
