"""Ranks from a Prometheus server, as a feed of the interface: now, or at an instant of the past."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Callable, Optional

from memtui.analysis import units
from memtui.analysis.text import clean
from memtui.session.members import Member
from memtui.session.readings import DriverReading
from memtui.session.session import Session
from memtui.wire.histories import HistoryNews

from .client import Client
from .collect import Key, Place
from .errors import Refused
from .fleet import Course, Fleet
from .history import NOTE, RankHistory
from .moments import devices_of, moment_now
from .rows import whole
from .selector import Selector
from .watcher import Heard, Wanted, Watcher

_SECOND_NS = 1_000_000_000
#: How far back there is something to be seen, unless more is asked for.
USUAL_SINCE_S = 3_600.0
_RUNS_NAMED = 4
#: What a server never has.
_ABSENT = {
    "tensors": "tensors",
    "segments": "segments",
    "step": "recorded steps",
    "output": "output of the program",
    "events": "texts of events",
    "errors": "messages of failed allocations",
}


class FleetFeed:
    """Everything that was heard last. One rank is opened at a time, and its history kept as long as it is."""

    program = None
    label = ""
    usual_span_s = 600  # of a rank's chart: a scrape is not a frame
    driver: Optional[DriverReading] = None

    def __init__(
        self, client: Client, selector: Selector, *, since_s: float = USUAL_SINCE_S, at_s: Optional[float] = None
    ) -> None:
        """Asks nothing yet."""
        self.on_change: Optional[Callable[[], None]] = None
        self.revision = 0
        self.fleet: Optional[Fleet] = None
        self.tracks: dict[Key, list[tuple[float, float]]] = {}
        self.trouble, self.trouble_since_s = "", 0.0
        self.chosen_run: Optional[tuple[str, str, str]] = None
        self._client, self._selector, self._since_s = client, selector, since_s
        self._first_s = (time.time() if at_s is None else at_s) - since_s
        self._wanted = Wanted(at_s)
        self._watcher = Watcher(client, selector, self._hear, self._wanted)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._members: dict[Key, Member] = {}
        self._history: Optional[RankHistory] = None
        self._session = self._nothing = Session()
        self._heard_at = time.monotonic()

    # Sources

    def first(self) -> None:
        """Asks once, before there is a screen; raises PrometheusError, also where there is nothing to be seen."""
        heard = self._watcher.first()
        fleet = heard.fleet
        assert fleet is not None
        if not fleet.courses:
            raise Refused(self._nothing_there())
        self._take(heard)

    def _nothing_there(self) -> str:
        where, at_s = self._client.address.text, self._wanted.at_s
        chosen = f" for {self._selector.text}" if self._selector.matchers else ""
        if at_s is not None:
            clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
            return f"{where} has no series of memtui's{chosen} from {clock}: give a later --at, or none"
        runs = self._watcher.runs() if chosen else []
        if runs:
            named = ", ".join(run or "one without a name" for run in runs[:_RUNS_NAMED])
            more = f" and {len(runs) - _RUNS_NAMED} more" if len(runs) > _RUNS_NAMED else ""
            return f"{where} has no series of memtui's{chosen}; there are runs: {named}{more}"
        return (
            f"{where} has no series of memtui's: run memtui serve on the training's hosts, and add its port to "
            "scrape_configs of the server"
        )

    async def start(self) -> None:
        """Begins to look."""
        self._loop = asyncio.get_running_loop()
        self._watcher.start()

    async def stop(self) -> None:
        """Ends the connection."""
        self._watcher.stop()

    def _hear(self, heard: Heard) -> None:
        # On the watcher's thread; the loop may have ended.
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it ends just now
                loop.call_soon_threadsafe(self._take, heard)

    def _take(self, heard: Heard) -> None:
        self.revision += 1
        if heard.trouble:
            if not self.trouble:
                self.trouble_since_s = time.time()
            self.trouble = heard.trouble
            if self._wanted.opened is not None and not self.replay:
                self._session.set_connection("lost", self.trouble_text())
        elif heard.fleet is not None:
            self.trouble, self.fleet, self.tracks = "", heard.fleet, heard.tracks
            self._heard_at = time.monotonic()
            self._take_history(heard)
        if self.on_change is not None:
            self.on_change()

    def _take_history(self, heard: Heard) -> None:
        if heard.wanted.opened != self._wanted.opened:
            return
        if heard.history is not None:
            self._history = heard.history
        history = self._history
        if history is None or history.key != self._wanted.opened:
            return
        history.add(heard.moments)
        self._tell_age(history)
        self._session = history.session_at(self.now_ns()) if self.replay else history.whole
        look, key = heard.fleet.look if heard.fleet is not None else None, history.key
        target = None if look is None else look.targets.get(Place(key.job, key.instance))
        if self.replay or look is None or (target is not None and target.up):
            self._session.set_connection("connected")
        else:
            self._session.set_connection("lost", f"{key.instance} is not scraped any more: nothing newer is known")

    def _tell_age(self, history: RankHistory) -> None:
        """Of when the newest figures are, and how often there are some."""
        every = 0.0 if self.fleet is None else self.fleet.look.interval_s
        often = f", one every {every:.0f} s" if every >= 1 else ""
        clock = time.strftime("%H:%M:%S", time.localtime(history.last_s))
        history.whole.notice("prometheus", f"figures of {clock} from Prometheus{often}: {NOTE}")

    # What is known

    @property
    def replay(self) -> bool:
        """Whether an instant of the past is shown."""
        return self._wanted.at_s is not None

    @property
    def course(self) -> Optional[Course]:
        """The run that is chosen; the only one where there is one only."""
        courses = () if self.fleet is None else self.fleet.courses
        if len(courses) == 1:
            return courses[0]
        return next((each for each in courses if each.run.key == self.chosen_run), None)

    @property
    def members(self) -> Sequence[Member]:
        """The ranks of the run that is chosen; only an opened one has figures in its session."""
        course = self.course
        if course is None:
            return ()
        return [self._member(key, rank, life) for (rank, life), key in course.keys.items()]

    def _member(self, key: Key, rank: int, life: int) -> Member:
        member = self._members.get(key)
        if member is None or member.life != life:
            pid = int(key.pid) if key.pid.isascii() and key.pid.isdigit() and len(key.pid) < 10 else 0
            member = Member(pid, lambda: self._session_of(key), rank=rank, life=life)
            member.number = rank if whole(key.rank) is None else None  # a process that is no rank
            self._members[key] = member
        return member

    def _session_of(self, key: Key) -> Session:
        return self._session if key == self._wanted.opened else self._nothing

    @property
    def several(self) -> bool:
        """The overview comes first, whatever there is."""
        return self.fleet is not None

    @property
    def session(self) -> Session:
        """Of the rank that is opened."""
        return self._session

    def now_ns(self) -> int:
        """The instant that the figures are of: the newest scrape of the opened rank, else of the last look."""
        at_s = self._wanted.at_s
        if at_s is not None:
            return int(at_s * 1e9)
        if self.fleet is None:
            return time.time_ns()
        look, key = self.fleet.look, self._wanted.opened
        target = None if key is None else look.targets.get(Place(key.job, key.instance))
        scraped_s = look.time_s if target is None or not target.up else min(target.scraped_s, look.time_s)
        return int(scraped_s * 1e9)

    @property
    def age_s(self) -> float:
        """How old the figures of the overview are."""
        return 0.0 if self.fleet is None else self.fleet.age_s + time.monotonic() - self._heard_at

    def absent(self, what: str) -> str:
        """Why there are no "tensors", "segments" or recorded steps, and where they are to be had; "" of others."""
        words = _ABSENT.get(what)
        if words is None:
            return ""
        session = self._session
        if session.end is not None:
            return f"Prometheus holds no {words}; memtui attach --log keeps them while a rank runs"
        host = session.hello.hostname if session.hello is not None else ""
        where = f"on {host}: memtui attach --pid {session.pid}" if host and session.pid else "memtui attach, there"
        return f"Prometheus holds no {words}; {where} shows them"

    def request(self, name: str) -> bool:
        """Never: there is no agent to ask."""
        return False

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        """There is no process to ask."""
        return self.absent("step")

    # What is shown

    def choose(self, member: Member) -> None:
        """Opens a rank: its history is fetched, and until then its session is empty."""
        key = next((key for key, each in self._members.items() if each is member), None)
        if key is None or key == self._wanted.opened:
            return
        self._history, self._session = None, self._known_now(key)
        if self.trouble:
            self._session.set_connection("lost", self.trouble_text())
        now_s, at_s = time.time(), self._wanted.at_s
        around_s = now_s if at_s is None else at_s
        end_s = min(now_s, around_s + self._since_s)
        self._want(replace(self._wanted, opened=key, start_s=around_s - self._since_s, end_s=end_s))

    def _known_now(self, key: Key) -> Session:
        """What is known of a rank before its past has been fetched."""
        if self.fleet is None:
            return self._nothing
        look = self.fleet.look
        return RankHistory(key, devices_of(look, key), moment_now(look, key)).whole

    def close_rank(self) -> None:
        """Back to all of them."""
        self._want(replace(self._wanted, opened=None))

    def show(self, keys: Sequence[Key], span_s: float) -> None:
        """These are in view, with charts of so much time."""
        self._want(replace(self._wanted, shown=tuple(keys), span_s=span_s))

    def _want(self, wanted: Wanted) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self._watcher.want(wanted)

    # Time

    @property
    def start_ns(self) -> int:
        """The first instant that can be gone to."""
        return int((self._first_s if self._wanted.opened is None else self._wanted.start_s) * 1e9)

    @property
    def end_ns(self) -> int:
        """The last one: now, or where the opened rank's history ends."""
        return time.time_ns() if self._wanted.opened is None else int(self._wanted.end_s * 1e9)

    def session_at(self, time_ns: int) -> Session:
        """The opened rank's session as it was then."""
        return self._session if self._history is None else self._history.session_at(time_ns)

    def seek(self, time_ns: int) -> None:
        """Shows everything as it was at `time_ns`, clamped to what can be gone to; from its end on, now."""
        at_s = max(self.start_ns, min(time_ns, self.end_ns)) / 1e9
        self._want(replace(self._wanted, at_s=at_s))
        if self._history is not None:
            self._session = self._history.session_at(time_ns)
        self.revision += 1

    def go_live(self) -> None:
        """Shows what is now."""
        self._want(replace(self._wanted, at_s=None))
        if self._history is not None:
            self._session = self._history.whole
        self.revision += 1

    def trouble_text(self) -> str:
        """That the server does not answer, and since when; "" where it does."""
        if not self.trouble:
            return ""
        clock = time.strftime("%H:%M:%S", time.localtime(self.trouble_since_s))
        seconds = int(time.time() - self.trouble_since_s)
        age = f"{seconds} s" if seconds < 60 else units.duration(seconds * _SECOND_NS)
        return clean(f"since {clock} ({age}) the figures stand still: {self.trouble}", 300)
