"""The alert rules: promtool's unit tests of each, and a real Prometheus that evaluates them over a fleet."""

from __future__ import annotations

import pathlib
import re
import time

from tests.support.dashboards import RULES
from tests.support.fleet import Fleet, scraped
from tests.support.fleet_ranks import Planted
from tests.support.prometheus import Client, promtool, wait_until

UNIT_TESTS = pathlib.Path(__file__).parent.parent / "rules" / "alerts.yml"


def test_promtool_is_content() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


def test_each_alert_where_it_is_called_for_and_where_not() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    tested = set(re.findall(r"- alertname: (\w+)\n\s+eval_time: \w+\n\s+exp_alerts:\n", UNIT_TESTS.read_text()))
    assert tested == alerts
    assert "SUCCESS" in promtool("test", "rules", str(UNIT_TESTS))


def _alerts(client: Client) -> set[tuple[str, str]]:
    """Each with the rank, or else the host, that it is about; those that wait to be sure count, too."""
    given = [alert["labels"] for alert in client.get("alerts")["alerts"]]
    return {(each["alertname"], each.get("rank", each["instance"])) for each in given}


def test_a_fleet_has_the_alerts_of_the_ranks_that_are_not_as_they_should_be() -> None:
    now = time.time()
    fleet = Fleet(64, 8, stages=4, begun=now - 900, silent_at=now - 20, planted=Planted.usual(64, 4, more=True))
    planted = fleet.planted
    with scraped(fleet, past_s=700, past_step_s=15, rules=[RULES]) as client:
        client.wait_scraped(8)
        expected = {
            ("MemtuiHeadroomLow", str(planted.full)),
            ("MemtuiAllocationRetries", str(planted.full)),
            ("MemtuiRankSilent", str(planted.silent)),
            ("MemtuiLeak", str(planted.leaking)),  # which has more than an hour left
            ("MemtuiOutOfMemory", str(planted.exhausted)),
        }
        wait_until(lambda: _alerts(client) >= expected, f"alerts {sorted(expected)}")
        client.wait_evaluated()
        assert _alerts(client) == expected
        fleet.gone.add(0)
        wait_until(lambda: ("MemtuiHostGone", "node-000:9464") in _alerts(client), "the alert of a host that is gone")


def test_a_fleet_that_is_well_has_no_alert_and_one_series_a_run() -> None:
    now = time.time()
    fleet = Fleet(64, 8, stages=4, begun=now - 900, planted=Planted())
    with scraped(fleet, past_s=700, past_step_s=15, rules=[RULES]) as client:
        client.wait_scraped(8)
        wait_until(lambda: client.query("run_state:memtui_ranks:count{state='live'} == 64"), "the recording rules")
        for name in re.findall(r"- record: (\S+)", RULES.read_text()):
            wait_until(lambda name=name: client.query(name), name)
        client.wait_evaluated()
        assert _alerts(client) == set()
