"""The limit of a process's control groups, read from a file system made up of what kernels show."""

from __future__ import annotations

import os
import pathlib

import pytest

from memtui.sources.cgroup import MemoryLimit, memory_limit
from memtui.sources.host import HostSource

MIB = 1 << 20
PHYSICAL = 64 << 30
V1_MOUNT = "32 31 0:29 {root} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
NO_LIMIT = {1: "9223372036854771712", 2: "max"}


class System:
    """Control groups of one version, in files."""

    def __init__(self, root: pathlib.Path, version: int, group: str, mounted: str = "/") -> None:
        self.root, self.version = root, version
        self.mount = root / ("sys/fs/cgroup/memory" if version == 1 else "sys/fs/cgroup")
        (root / "proc/7").mkdir(parents=True)
        (root / "proc/self").mkdir()
        told = f"9:cpu,cpuacct:/other\n4:memory:{group}\n0::/elsewhere\n" if version == 1 else f"0::{group}\n"
        (root / "proc/7/cgroup").write_text(told)
        line = (V1_MOUNT if version == 1 else V2_MOUNT).format(root=mounted)
        (root / "proc/self/mountinfo").write_text(f"23 1 0:20 / / rw - ext4 /dev/vda rw\n{line}\n")

    def group(self, name: str, limit_mib: int | None, usage_mib: int, file_mib: int = 0) -> None:
        """A group below the mount point: its limit, what it uses, and how much of that are pages of files."""
        folder = self.mount / name
        folder.mkdir(parents=True, exist_ok=True)
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        limit_file, usage_file, total = names if self.version == 1 else ("memory.max", "memory.current", "")
        (folder / limit_file).write_text(NO_LIMIT[self.version] if limit_mib is None else str(limit_mib * MIB))
        (folder / usage_file).write_text(f"{usage_mib * MIB}\n")
        (folder / "memory.stat").write_text(
            f"anon 1\n{total}active_file {file_mib * MIB}\n{total}inactive_file {file_mib * MIB}\n"
        )

    def limit(self) -> MemoryLimit | None:
        return memory_limit(7, PHYSICAL, self.root)


@pytest.mark.parametrize("version", [1, 2])
class TestLimits:
    def test_the_lowest_of_all_above(self, version: int, tmp_path: pathlib.Path) -> None:
        """The slice's limit is higher than the job's, and more of it is taken: both count."""
        system = System(tmp_path, version, "/slice/job/step")
        system.group("slice", 8000, 7500, 100)
        system.group("slice/job", 4000, 1000, 0)
        system.group("slice/job/step", None, 500)

        assert system.limit() == MemoryLimit(4000 * MIB, 700 * MIB)

    def test_pages_of_files_are_room(self, version: int, tmp_path: pathlib.Path) -> None:
        """A data set that was read fills the cache, and takes nothing from anybody."""
        system = System(tmp_path, version, "/job")
        system.group("job", 4000, 4000, 1500)

        assert system.limit() == MemoryLimit(4000 * MIB, 3000 * MIB)

    def test_none(self, version: int, tmp_path: pathlib.Path) -> None:
        """No limit, one above the machine's memory, no such files, no such process."""
        system = System(tmp_path, version, "/job")
        assert system.limit() is None
        system.group("job", None, 100)
        assert system.limit() is None
        system.group("job", 1 << 20, 100)
        assert system.limit() is None
        assert memory_limit(8, PHYSICAL, tmp_path) is None

    def test_in_a_container(self, version: int, tmp_path: pathlib.Path) -> None:
        """The container's own group is what is mounted, whether it is named as such or seen from inside."""
        named = System(tmp_path / "named", version, "/docker/abc", mounted="/docker/abc")
        named.group("", 2000, 500)
        inside = System(tmp_path / "inside", version, "/../../abc")
        inside.group("", 3000, 500)

        assert named.limit() == MemoryLimit(2000 * MIB, 1500 * MIB)
        assert inside.limit() == MemoryLimit(3000 * MIB, 2500 * MIB)


def test_this_process() -> None:
    """What is really there can be read, whatever it is: room is less than capacity, and files are part of it all."""
    reading = HostSource(os.getpid()).read()

    assert reading.capacity_bytes is not None
    assert reading.room_bytes is not None
    assert reading.rss_bytes is not None
    assert reading.file_bytes is not None
    assert 0 < reading.file_bytes < reading.rss_bytes
    assert reading.room_bytes < reading.capacity_bytes
    assert reading.limit_bytes is None or reading.limit_bytes < (reading.total_bytes or 0)
