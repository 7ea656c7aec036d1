"""Panels and variables of Grafana's classic dashboard model, as plain objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

Plain = dict[str, Any]

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
#: Labels as columns of a table, in their order.
_NAMES = {
    "instance": "Host",
    "run": "Run",
    "rank": "Rank",
    "pid": "PID",
    "device": "Device",
    "index": "Index",
    "device_name": "Device",
}


def query(expression: str, legend: str = "", *, instant: bool = False) -> Plain:
    """A query; it gets its letter with its panel."""
    return {
        "datasource": _DATASOURCE,
        "expr": expression,
        "legendFormat": legend,
        "instant": instant,
        "range": not instant,
        "editorMode": "code",
    }


def thresholds(first: str, *steps: tuple[float, str]) -> Plain:
    """A colour, and the others from which value on."""
    return {
        "mode": "absolute",
        "steps": [{"color": first, "value": None}, *({"color": colour, "value": at} for at, colour in steps)],
    }


def _panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Plain],
    size: tuple[int, int],
    defaults: Plain,
    options: Plain,
    overrides: Sequence[Plain] = (),
) -> Plain:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": _DATASOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": [{"refId": chr(ord("A") + number), **each} for number, each in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
    }


def stat(
    title: str,
    expression: str,
    description: str,
    *,
    unit: str = "none",
    steps: Optional[Plain] = None,
    width: int = 4,
    height: int = 4,
) -> Plain:
    """One figure of now, coloured by its thresholds."""
    defaults = {"unit": unit, "color": {"mode": "thresholds"}, "thresholds": steps or thresholds("text")}
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "textMode": "value",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "orientation": "auto",
    }
    return _panel("stat", title, description, [query(expression, instant=True)], (width, height), defaults, options)


def timeseries(
    title: str,
    description: str,
    queries: Sequence[Plain],
    *,
    unit: str,
    width: int,
    height: int = 8,
    minimum: Optional[float] = None,
    decimals: Optional[int] = None,
    stacked: bool = False,
    colours: Optional[Mapping[str, str]] = None,
    dashed: Optional[Mapping[str, str]] = None,
    style: str = "line",
) -> Plain:
    """Lines, or areas one on the other; `colours` and `dashed` lines are by the name of a series."""
    custom: Plain = {
        "drawStyle": style,
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    defaults: Plain = {"unit": unit, "color": {"mode": "palette-classic"}, "custom": custom}
    if minimum is not None:
        defaults["min"] = minimum
    if decimals is not None:
        defaults["decimals"] = decimals
    overrides = [_override(name, {"color": _fixed(colour)}) for name, colour in (colours or {}).items()]
    for name, colour in (dashed or {}).items():
        line = {"fill": "dash", "dash": [8, 6]}
        overrides.append(_override(name, {"color": _fixed(colour), "custom.lineStyle": line}))
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel("timeseries", title, description, queries, (width, height), defaults, options, overrides)


def bars(title: str, description: str, queries: Sequence[Plain], *, width: int) -> Plain:
    """Counts within each interval, one on the other."""
    return timeseries(
        title, description, queries, unit="none", width=width, minimum=0, decimals=0, stacked=True, style="bars"
    )


def histogram(title: str, description: str, asked: Plain, *, unit: str, bucket: float, width: int) -> Plain:
    """How many series have a value in each bucket, now."""
    defaults = {
        "unit": unit,
        "color": {"mode": "fixed", "fixedColor": "blue"},
        "custom": {"lineWidth": 1, "fillOpacity": 80},
    }
    options = {
        "bucketSize": bucket,
        "combine": True,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return _panel("histogram", title, description, [asked], (width, 8), defaults, options)


def table(
    title: str,
    description: str,
    columns: Mapping[str, str],
    *,
    units: Mapping[str, str],
    sort: tuple[str, bool],
    gauges: Optional[Mapping[str, Plain]] = None,
    empty: str = "",
    width: int,
    height: int = 8,
) -> Plain:
    """A line for each set of labels that the expressions of `columns` have in common.

    `sort` is a column and whether the highest comes first; `gauges` are columns of shares with their thresholds;
    `empty` is what stands there when there is nothing to be listed, where that is as it should be.
    """
    queries = [{**query(expression, instant=True), "format": "table"} for expression in columns.values()]
    letters = [chr(ord("A") + number) for number in range(len(queries))]
    # With a single query the column has no letter.
    values = [f"Value #{letter}" for letter in letters] if len(queries) > 1 else ["Value"]
    overrides = [_override(name, {"unit": unit}) for name, unit in units.items()]
    for name, steps in (gauges or {}).items():
        cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        overrides.append(
            _override(
                name,
                {"custom.cellOptions": cell, "min": 0, "max": 1, "thresholds": steps, "color": {"mode": "thresholds"}},
            )
        )
    defaults: Plain = {
        "custom": {"align": "auto", "filterable": True, "inspect": False, "cellOptions": {"type": "auto"}}
    }
    if empty:
        defaults["noValue"] = empty
    options = {
        "frameIndex": 0,
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [{"displayName": sort[0], "desc": sort[1]}],
    }
    panel = _panel("table", title, description, queries, (width, height), defaults, options, overrides)
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True, "device_uuid": True},
                "indexByName": {name: place for place, name in enumerate((*_NAMES, *values))},
                "renameByName": {
                    **dict(zip(values, columns)),
                    **_NAMES,
                },
            },
        },
    ]
    return panel


def _override(name: str, properties: Mapping[str, Any]) -> Plain:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


def _fixed(colour: str) -> Plain:
    return {"mode": "fixed", "fixedColor": colour}


def datasource_variable() -> Plain:
    """Which Prometheus."""
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


def variable(name: str, label: str, asked: str, *, numbers: bool = False) -> Plain:
    """Several values of a label, or all of them, the empty one included."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": _DATASOURCE,
        "query": {"query": asked, "refId": name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "options": [],
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 3 if numbers else 1,
    }


def annotation(name: str, expression: str, told: str) -> Plain:
    """A mark on all time series where the expression has a value."""
    return {
        "name": name,
        "datasource": _DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "expr": expression,
        "titleFormat": name,
        "textFormat": told,
    }


def laid_out(rows: Iterable[tuple[Optional[str], Iterable[Plain]]]) -> list[Plain]:
    """The panels with their places and numbers: from left to right, and below where a line is full."""
    placed: list[Plain] = []
    y = 0
    for title, row in rows:
        if title is not None:
            grid = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
            placed.append({"type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []})
            y += 1
        x = height = 0
        for panel in row:
            grid = panel["gridPos"]
            if x + grid["w"] > _COLUMNS:
                x, y, height = 0, y + height, 0
            placed.append({**panel, "gridPos": {"x": x, "y": y, **grid}})
            x, height = x + grid["w"], max(height, grid["h"])
        y += height
    return [{"id": number, **panel} for number, panel in enumerate(placed, 1)]
