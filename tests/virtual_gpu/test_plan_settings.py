"""`memtui plan` with several settings: a table of them, and a search of one that the program does not read."""

from __future__ import annotations

import os
import pathlib
import time

from tests.support import programs
from tests.support.planning import DOES_NOT_FIT, FITS, called, plan, write_script


def test_settings_beside_each_other(tmp_path: pathlib.Path) -> None:
    """An argument, and a variable with one value; what is short is what a larger card would have."""
    program = write_script(tmp_path)
    words = ("--gpu", "2GiB", "--compare", "batch=64,120000", "--compare", "UNREAD=a", "--json", program)
    found = plan(tmp_path, *words, status=DOES_NOT_FIT, STEPS="2")
    assert [row["settings"] for row in found] == [{"batch": batch, "UNREAD": "a"} for batch in ("64", "120000")]
    assert [row["fits"] for row in found] == [True, False]
    assert all(row["spare_bytes"] == (2 << 30) - row["peak_device_bytes"] for row in found)
    assert found[0]["spare_bytes"] > 0 > found[1]["spare_bytes"]


def test_they_are_a_table_for_every_gpu(tmp_path: pathlib.Path) -> None:
    words = ("--gpu", "2GiB,24GiB", "--compare", "batch=64,4096", write_script(tmp_path))
    text = plan(tmp_path, *words, status=FITS, COLUMNS="100", STEPS="2")
    rows = [line.split() for line in text.splitlines()[1:]]
    assert rows[0][:3] == ["GPU", "batch", "fits"]
    assert [row[3:5] for row in rows[1:5]] == [["64", "yes"], ["4096", "yes"]] * 2
    assert rows[1][5:9] == rows[3][5:9] != rows[2][5:9]  # what is allocated and reserved is the program's
    assert len(rows) == 5


def test_a_search_of_an_argument_that_is_not_read(tmp_path: pathlib.Path) -> None:
    program = write_script(tmp_path)
    done = called(tmp_path, "--gpu", "24GiB", "--fit", "unread=1..900", program, STEPS="2")
    assert done.returncode == FITS
    assert done.stdout.startswith("unread changes nothing: ")
    assert done.stderr.count("memtui: running unread") == 3


def test_no_supervisor_stays(tmp_path: pathlib.Path) -> None:
    """A second after the answer none of them is left; they have the sockets' folder in their environment."""
    plan(tmp_path, "--gpu", "24GiB", "--json", write_script(tmp_path), status=FITS, STEPS="2")
    begun = time.monotonic()
    programs.wait_for(lambda: not _of_this_plan(tmp_path), 9, "the supervisors' end")
    assert time.monotonic() - begun < 5


def _of_this_plan(tmp_path: pathlib.Path) -> list[str]:
    mark = f"MEMTUI_RUNTIME_DIR={tmp_path / 'runtime'}".encode()
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark in pathlib.Path("/proc", name, "environ").read_bytes():
                found.append(name)
        except OSError:
            continue
    return found
