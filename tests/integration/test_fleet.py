"""The simulated fleet, as a real Prometheus sees it."""

from __future__ import annotations

import time

import pytest

from tests.support.fleet import Fleet, scraped
from tests.support.fleet_ranks import Planted, stage_of
from tests.support.prometheus import promtool, wait_until


def test_figures_are_well_formed_and_add_up() -> None:
    fleet = Fleet(16, 2, stages=2, planted=Planted.usual(16, 2, more=True))
    assert promtool("check", "metrics", text=fleet.hosts[0].exposition(time.time())) == ""
    for host in fleet.ranks:
        for rank in host:
            figures = rank.figures(time.time())
            categories = [value for name, value in figures.items() if name.startswith("category_bytes|")]
            assert sum(categories) == figures["allocated_bytes"] <= figures["reserved_bytes"]
            assert figures["headroom_bytes"] == figures["capacity_bytes"] - figures["predicted_peak_device_bytes"] > 0


def test_planted_ranks_stand_out_and_the_past_is_there() -> None:
    now = time.time()
    fleet = Fleet(64, 8, stages=4, begun=now - 600, silent_at=now - 60)
    planted, stages = fleet.planted, stage_of(fleet.ranks)
    with scraped(fleet, past_s=600, past_step_s=30) as client:
        client.wait_scraped(8)
        lowest = client.query("bottomk(1, memtui_headroom_bytes)")
        assert lowest[0].labels["rank"] == str(planted.full)
        peaks = {int(each.labels["rank"]): each.value for each in client.query("memtui_predicted_peak_allocated_bytes")}
        assert len(peaks) == 64
        assert planted.large is not None
        peers = [
            peak for rank, peak in peaks.items() if stages[rank] == stages[planted.large] and rank != planted.large
        ]
        assert peaks[planted.large] > 1.2 * max(peers)
        assert peaks[planted.large] < min(peak for rank, peak in peaks.items() if stages[rank] == 0)
        silent = client.query('memtui_state{state="silent"} == 1')
        assert [each.labels["rank"] for each in silent] == [str(planted.silent)]
        past = client.query_range('memtui_steps_total{rank="3"}', now - 500, now - 100, 50)
        values = [value for _, value in past[0].points]
        assert len(values) == 9
        assert values == sorted(set(values))
        assert past[0].labels["instance"] == "node-000:9464"

        fleet.gone.add(2)
        wait_until(lambda: client.query("sum(up)")[0].value == 7, "a host that is gone")
        assert not client.query('memtui_headroom_bytes{instance="node-002:9464"}')


def test_without_planted_ranks_all_are_alike_within_a_stage() -> None:
    fleet = Fleet(32, 2, stages=2, planted=Planted())
    peaks = [rank.figures(time.time())["predicted_peak_device_bytes"] for host in fleet.ranks for rank in host]
    for stage in (peaks[:16], peaks[16:]):
        assert max(stage) / min(stage) == pytest.approx(1, abs=0.01)
    assert max(peaks[16:]) < 0.7 * min(peaks[:16])
