"""`memtui watch` beside a real Prometheus that scrapes simulated ranks."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from memtui.prometheus.address import parse_address
from memtui.prometheus.client import Client
from memtui.prometheus.collect import Collector
from memtui.prometheus.feed import FleetFeed
from memtui.prometheus.fleet import fleet_of
from memtui.prometheus.selector import Selector, parse_selector
from tests.bench.terminal import Terminal
from tests.support import prometheus
from tests.support.answering import answering, whole
from tests.support.fleet import Fleet, scraped
from tests.support.fleet_ranks import Planted

_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Fleet, prometheus.Client]]:
    """64 ranks on 8 hosts, scraped every second; one of them has been silent for a minute."""
    now = time.time()
    planted = Planted.usual(64, 4, more=True)
    fleet = Fleet(64, 8, stages=4, planted=planted, begun=now - 600, silent_at=now - 60)
    with scraped(fleet, past_s=300, past_step_s=5) as client:
        client.wait_scraped(8)
        yield fleet, client


def memtui(url: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtui", "watch", "--prometheus", url, *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_PATIENCE_S, env={**os.environ, **environment}, check=False
    )


def test_lines_say_how_all_ranks_are_and_what_is_wrong(watched: tuple[Fleet, prometheus.Client]) -> None:
    fleet, client = watched
    done = memtui(client.url, "--headless", "--frames", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    summaries = [line for line in lines if " · pretrain-70b · 64 ranks on 8 hosts · " in line]
    assert len(summaries) == 2
    assert "63 of 64 ranks live" in summaries[0]
    planted = fleet.planted
    for words in (
        f"rank {planted.exhausted}: ended: out of memory",
        f"no frame of rank {planted.silent} (node-004) for ",
        f"rank {planted.full} (node-001) is nearly full",
        f"rank {planted.leaking} grows 24.0 MiB a step",
        f"rank {planted.large} holds ",
    ):
        assert sum(words in line for line in lines) == 1, words


def test_an_instant_of_the_past_is_as_it_was(watched: tuple[Fleet, prometheus.Client]) -> None:
    fleet, client = watched
    done = memtui(client.url, "--headless", "--at", f"{fleet.silent_at - 100:.0f}")
    assert done.returncode == 0, done.stderr
    assert "64 ranks on 8 hosts" in done.stdout
    assert "no frame of" not in done.stdout
    assert f"rank {fleet.planted.full} (node-001) is nearly full" in done.stdout


def test_a_selector_chooses_ranks(watched: tuple[Fleet, prometheus.Client]) -> None:
    _, client = watched
    done = memtui(client.url, "--headless", "--frames", "1", "--query", 'instance=~"node-00[12]:.*"')
    assert done.returncode == 0, done.stderr
    assert "16 ranks on 2 hosts · 16 of 64 ranks are here" in done.stdout


@pytest.mark.parametrize(
    ("query", "words"),
    [('run="none"', "has no series of memtui's for {run=\"none\"}; there are runs: pretrain-70b"),
     ('run=~"["', "refuses the query: ")],
)  # fmt: skip
def test_a_selector_of_nothing_is_one_clear_line(
    watched: tuple[Fleet, prometheus.Client], query: str, words: str
) -> None:
    _, client = watched
    done = memtui(client.url, "--headless", "--frames", "1", "--query", query)
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


def test_a_prometheus_without_series_says_what_to_do() -> None:
    with prometheus.prometheus([]) as client:
        done = memtui(client.url, "--headless")
    assert done.returncode == 1
    assert "run memtui serve on the training's hosts" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_is_none_and_one_that_wants_a_password(tmp_path: pathlib.Path) -> None:
    with answering(lambda *_: whole("<html>\x1b[31mred</html>")) as url:
        done = memtui(url, "--headless")
    assert done.returncode == 1
    assert "is no Prometheus server" in done.stderr
    assert "\x1b" not in done.stderr
    with answering(lambda *_: whole("go away", 401)) as url:
        done = memtui(url, "--headless")
    assert done.returncode == 1
    assert "--user NAME" in done.stderr
    done = memtui("http://host", "--headless", "--user", "me", "--password-file", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "the password cannot be read" in done.stderr


def test_escapes_in_a_servers_words_never_reach_the_terminal() -> None:
    evil = {"status": "error", "errorType": "bad_data", "error": "\x1b]0;owned\x07\x1b[2Jbad"}
    with answering(lambda *_: whole(json.dumps(evil), 400)) as url:
        done = memtui(url, "--headless")
    assert done.returncode == 1
    assert "\x1b" not in done.stderr + done.stdout
    assert "bad" in done.stderr


def test_a_host_that_goes_away_is_told_from_a_silent_rank(watched: tuple[Fleet, prometheus.Client]) -> None:
    fleet, client = watched
    collector = Collector(Client(parse_address(client.url)), Selector())
    fleet.gone.add(6)
    try:

        def gone() -> bool:
            (course,) = fleet_of(collector.look()).courses
            states = {row.rank: row.state for row in course.view.rows}
            said = [finding.text for finding in course.view.findings if finding.key == "gone"]
            if not any("node-006:9464 is not scraped any more, for " in text for text in said):
                return False
            return {states[rank] for rank in range(48, 56)} == {"lost"} and states[fleet.planted.silent] == "silent"

        prometheus.wait_until(gone, "ranks of a host that has gone")
    finally:
        fleet.gone.clear()


def test_what_had_ended_before_its_host_went_is_told_as_it_was() -> None:
    """GIVEN a host whose ranks have ended, vanished and gone on, WHEN it goes, THEN the last alone are gone."""
    now = time.time()
    fleet = Fleet(8, 1, planted=Planted(exhausted=2), begun=now - 600, silent_at=now - 60)
    host = fleet.hosts[0]
    with scraped(fleet, past_s=60, past_step_s=5) as client:
        client.wait_scraped(1)
        collector = Collector(Client(parse_address(client.url)), Selector())
        host.ranks = [rank for rank in host.ranks if rank.rank != 7]
        host._templates.clear()
        vanished = (
            "count(memtui_state{state='ended'}) == 7 and on () count(memtui_state{state='ended'} offset 16s) == 7"
        )
        prometheus.wait_until(lambda: client.query(vanished), "that a rank has vanished, and the host has not")
        fleet.gone.add(0)

        def told() -> bool:
            (course,) = fleet_of(collector.look()).courses
            rows = {row.rank: row for row in course.view.rows}
            if rows[0].state != "lost":
                return False
            assert set(rows) == set(range(7))
            assert (rows[2].state, rows[2].state_text) == ("ended", "ended: out of memory")
            [gone] = [finding for finding in course.view.findings if finding.key == "gone"]
            assert gone.ranks == (0, 1, 3, 4, 5, 6)
            assert "rank 2: ended: out of memory" in [finding.text for finding in course.view.findings]
            return True

        prometheus.wait_until(told, "what is known of a host that has gone")


def test_the_past_of_a_rank_comes_from_the_server(watched: tuple[Fleet, prometheus.Client]) -> None:
    fleet, client = watched
    feed = FleetFeed(Client(parse_address(client.url)), parse_selector(""))
    feed.first()
    feed.choose(feed.members[3])
    heard = feed._watcher._round(feed._wanted)
    feed._take(heard)
    session = feed.session
    assert session.frame is not None
    series = session.series("cuda:3", "allocated_bytes")
    assert series is not None
    assert series.first_time_ns is not None
    assert series.first_time_ns < (time.time() - 200) * 1e9
    before = session.frame.time_ns
    prometheus.wait_until(lambda: _newer(feed, before), "a scrape after the first")
    rank = fleet.rank(3)
    told = session.device_frame("cuda:3")
    assert told is not None
    assert told.allocated_bytes == rank.figures(session.frame.time_ns / 1e9)["allocated_bytes"]


def _newer(feed: FleetFeed, before_ns: int) -> bool:
    feed._take(feed._watcher._round(feed._wanted))
    frame = feed.session.frame
    return frame is not None and frame.time_ns > before_ns


def test_on_a_terminal_a_rank_is_opened_and_all_of_them_come_back(watched: tuple[Fleet, prometheus.Client]) -> None:
    fleet, client = watched
    terminal = Terminal(
        [sys.executable, "-m", "memtui", "watch", "--prometheus", client.url],
        {**os.environ, "TERM": "xterm-256color"},
        screen=True,
    )
    try:
        terminal.until("64 ranks", "by outliers", "SILENT", seconds=_PATIENCE_S)
        terminal.press("\x1b[B\x1b[B\r")
        terminal.until(f"rank {fleet.planted.full} · train.py", "predicted peak", "0 ranks", seconds=2 * _PATIENCE_S)
        terminal.press("5")
        terminal.until("Prometheus holds no tensors", seconds=3 * _PATIENCE_S)
        terminal.press("0")
        terminal.until("by outliers", "SILENT", seconds=4 * _PATIENCE_S)
        terminal.press("b")
        terminal.until("by hosts", "node-007", seconds=5 * _PATIENCE_S)
        terminal.press("q")
        assert terminal.process.wait(_PATIENCE_S) == 0
    finally:
        terminal.close()


def test_a_server_that_goes_away_is_said_and_it_goes_on_when_it_is_back() -> None:
    now = time.time()
    fleet = Fleet(8, 1, stages=1, begun=now - 60)
    with fleet.serving(), prometheus.prometheus(fleet.targets) as client:
        client.wait_scraped(1)
        relay = _Relay(client.url)
        with answering(relay.answer) as url:
            command = [sys.executable, "-m", "memtui", "watch", "--prometheus", url, "--headless"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                try:
                    assert "8 ranks on node-000" in child.stdout.readline()
                    relay.away = True
                    assert _line(child.stdout, "is not ready")
                    relay.away = False
                    assert _line(child.stdout, "the server answers again")
                    assert _line(child.stdout, "8 ranks on node-000")
                finally:
                    child.terminate()
            assert child.returncode == 130


class _Relay:
    """What a Prometheus says, or that it is not there."""

    def __init__(self, url: str) -> None:
        self._url, self.away = url, False

    def answer(self, name: str, given: dict[str, str]) -> tuple[int, dict[str, str], Iterator[bytes]]:
        if self.away:
            return whole("away", 503)
        given.pop("authorization")
        found = prometheus.Client(self._url).get(name, **given)
        return whole({"status": "success", "data": found})


def _line(lines: Iterator[str], words: str) -> str:
    return next(line for line in lines if re.search(re.escape(words), line))
