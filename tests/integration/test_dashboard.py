"""The Grafana dashboard: what it asks has an answer, and it is what its builder makes."""

from __future__ import annotations

import re
import time

from memtui.serve import dashboard as built
from memtui.tui.palette import DARK
from memtui.wire.frames import CATEGORIES
from tests.support import dashboards
from tests.support.fleet import Fleet, scraped
from tests.support.fleet_ranks import Planted
from tests.support.prometheus import Client, wait_until


def test_it_is_what_its_builder_makes() -> None:
    assert dashboards.PATH.read_text() == built.text(), (
        "run python -m memtui.serve.dashboard > memtui/serve/dashboard.json"
    )


def test_panels_have_a_place_a_unit_and_a_word_of_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    panels = dashboards.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    variable = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels:
        grid = panel["gridPos"]
        places = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not places & taken
        assert grid["x"] + grid["w"] <= 24
        taken |= places
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".")
        assert panel["datasource"] == variable
        assert all(target["datasource"] == variable for target in panel["targets"])
        fields = panel["fieldConfig"]
        units = [each["value"] for one in fields["overrides"] for each in one["properties"] if each["id"] == "unit"]
        if panel["type"] == "table":
            assert len(units) == len(panel["targets"])
        else:
            assert fields["defaults"]["unit"]


def test_colours_are_those_of_the_interface() -> None:
    by_name = {
        override["matcher"]["options"]: each["value"]["fixedColor"]
        for panel in dashboards.dashboard()["panels"]
        if panel["title"] in ("Where the memory goes", "Memory against capacity")
        for override in panel["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "color"
    }
    assert {name: by_name[name] for name in CATEGORIES} == {name: DARK.tenant(name) for name in CATEGORIES}
    levels = ("allocated", "reserved", "device", "capacity")
    assert [by_name[name] for name in levels] == [getattr(DARK, name) for name in levels]
    assert by_name["predicted peak"] == DARK.forecast


def _wait_for_rates(client: Client, ranks: int) -> None:
    """A rate takes two scrapes."""
    wait_until(lambda: len(client.query("rate(memtui_steps_total[4s])")) == ranks, "rates of all ranks")


def test_every_query_has_an_answer_of_a_fleet() -> None:
    now = time.time()
    fleet = Fleet(32, 4, stages=2, begun=now - 300, silent_at=now + 8, planted=Planted.usual(32, 2, more=True))
    with scraped(fleet) as client:
        client.wait_scraped(4)
        _wait_for_rates(client, 32)
        wait_until(lambda: client.query('memtui_state{state="silent"} == 1'), "the one that falls silent")
        assert [each.labels["rank"] for each in dashboards.annotations(client)] == [str(fleet.planted.exhausted)]
        for asked in dashboards.ask_all(client):
            assert asked.answer, f"{asked.panel}: {asked.expression}"
            for label in re.findall(r"\{\{(\w+)\}\}", asked.legend):
                assert all(label in series.labels for series in asked.answer), f"{asked.panel}: no {label}"
        values = dashboards.variable_values(client)
        assert set(values["rank"]) == {str(number) for number in range(32)}
        assert (len(values["instance"]), len(values["run"]), len(values["device"])) == (4, 1, 8)

        # One rank alone: it is its own figures that are shown.
        rank = fleet.rank(5)
        chosen = {"rank": "5", "instance": "node-000:9464"}
        answers = {(asked.panel, asked.expression): asked for asked in dashboards.ask_all(client, chosen)}
        missing = [panel for (panel, _), asked in answers.items() if not asked.answer and not asked.may_be_empty]
        assert not missing
        headroom = next(each for (panel, _), each in answers.items() if panel == "Lowest headroom in bytes")
        assert headroom.answer[0].value == rank.figures(now)["headroom_bytes"]


def test_a_fleet_that_is_well_leaves_empty_only_what_lists_troubles() -> None:
    fleet = Fleet(8, 2, stages=1, begun=time.time() - 300, planted=Planted())
    with scraped(fleet) as client:
        client.wait_scraped(2)
        _wait_for_rates(client, 8)
        empty = {asked.panel for asked in dashboards.ask_all(client) if not asked.answer}
        assert empty == {"Silent ranks", "Leaks"}
        assert all(asked.may_be_empty for asked in dashboards.ask_all(client) if asked.panel in empty)


def test_its_colours_are_the_interfaces() -> None:
    """Who has read the bar there knows the areas here."""
    tenants = DARK.tenants
    assert {name: tenants[name] for name in built._CATEGORIES} == built._CATEGORIES
    assert {"allocated": DARK.allocated, "reserved": DARK.reserved, "device": DARK.device} == built._LEVELS
