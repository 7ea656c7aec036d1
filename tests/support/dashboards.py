"""What the Grafana dashboard asks, put to a Prometheus as Grafana would."""

from __future__ import annotations

import json
import pathlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

import memtui
from tests.support.prometheus import Client, Sample

PATH = pathlib.Path(memtui.__file__).parent / "serve" / "dashboard.json"
RULES = PATH.with_name("rules.yml")
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")


def dashboard() -> dict[str, Any]:
    """As it is shipped."""
    read: dict[str, Any] = json.loads(PATH.read_text())
    return read


@dataclass(frozen=True)
class Asked:
    """One query of a panel, and what Prometheus answered; `may_be_empty` where the panel says what that means."""

    panel: str
    expression: str
    legend: str
    may_be_empty: bool
    answer: list[Sample]


def filled(text: str, chosen: Mapping[str, str], range_s: float) -> str:
    """With Grafana's variables replaced; those not in `chosen` are all."""
    given = {"instance": ".*", "run": ".*", "rank": ".*", "device": ".*", **chosen}
    # Grafana takes four scrape intervals where the points of the screen are nearer to each other than that.
    given |= {"__rate_interval": "4s", "__range": f"{range_s:.0f}s"}
    return re.sub(r"\$(\w+)", lambda found: given[found.group(1)], text)


def ask_all(client: Client, chosen: Optional[Mapping[str, str]] = None, range_s: float = 60.0) -> Iterator[Asked]:
    """Every query of every panel, over the last `range_s`."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = filled(target["expr"], chosen or {}, range_s)
            now = time.time()
            if target["instant"]:
                answer = client.query(expression, now)
            else:
                answer = client.query_range(expression, now - range_s, now, 2)
            empty = "noValue" in panel["fieldConfig"]["defaults"]
            yield Asked(panel["title"], expression, target["legendFormat"], empty, answer)


def annotations(client: Client) -> list[Sample]:
    """What is marked now."""
    asked = [filled(each["expr"], {}, 60) for each in dashboard()["annotations"]["list"]]
    return [sample for expression in asked for sample in client.query(expression)]


def variable_values(client: Client) -> dict[str, list[str]]:
    """What can be chosen from, by variable."""
    found: dict[str, list[str]] = {}
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(filled(variable["query"]["query"], {}, 60))
            assert match is not None, variable["query"]
            found[variable["name"]] = client.get(f"label/{match[2]}/values", **{"match[]": match[1]})
    return found
