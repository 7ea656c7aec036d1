"""What may not be loaded where: the agent brings nothing along, the viewer starts without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("textual", "rich", "numpy", "pyte", "psutil", "pynvml", "torch", "asyncio")


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*{{name.partition('.')[0] for name in sys.modules}})"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import memtui",
        "import memtui.agent.agent, memtui.agent.dormant",
        "import memtui.wire.codec, memtui.wire.paths",
        "import memtui.cli",
        "import memtui.supervisor",
        "import memtui.snapshots.queries, memtui.snapshots.page, memtui.snapshots.export",
        "import memtui.planning.throwaway, memtui.planning.capability, memtui.planning.inside",
    ],
)
def test_what_starts_quickly_loads_nothing_heavy(code: str) -> None:
    assert not loaded_by(code).intersection(HEAVY)


@pytest.mark.parametrize("package", ["analysis.build", "session.session"])
def test_what_is_below_the_interface_knows_neither_textual_nor_torch(package: str) -> None:
    assert not loaded_by(f"import memtui.{package}").intersection(("textual", "rich", "torch"))


def test_the_plain_viewer_knows_no_prometheus() -> None:
    code = "import memtui.tui.app, memtui.tui.screens.ranks, memtui.commands.attach, memtui.commands.run; "
    code += "assert not any(name.startswith('memtui.prometheus') for name in sys.modules)"
    assert loaded_by(code)


def test_commands_work_without_torch() -> None:
    code = "sys.modules['torch'] = None; from memtui.cli import main; sys.argv = ['memtui', 'ps']; status = main()"
    done = subprocess.run([sys.executable, "-c", f"import sys; {code}"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
