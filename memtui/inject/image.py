"""A loaded ELF file as it is in a process's memory: what is mapped counts, and not what a path names by now.

So nothing has to be opened in the process's own file system, where files may have been deleted or replaced.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .maps import PAGE, Mapping
from .memory import Memory

_LOAD, _DYNAMIC = 1, 2
_EXECUTABLE = 1
_HASH, _STRTAB, _SYMTAB, _STRSZ, _GNU_HASH = 4, 5, 6, 10, 0x6FFFFEF5
_SYMBOL_BYTES = 24
_X86_64 = 62
#: Neither a hash chain nor a table of a sane file is longer.
_MOST = 1 << 20


@dataclass(frozen=True)
class Gap:
    """Bytes between the end of the code and the end of its last page: mapped, executable, and nobody's."""

    start: int
    end: int


class Image:
    """One file's program headers and dynamic symbols. Raises ValueError or OSError where it is no such file."""

    def __init__(self, memory: Memory, base: int) -> None:
        self._memory = memory
        header = memory.read(base, 64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        if struct.unpack_from("<H", header, 18)[0] != _X86_64:
            raise ValueError("not for x86-64")
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        table = memory.read(base + offset, size * count)
        #: (kind, flags, address, bytes in memory)
        self._segments: list[tuple[int, int, int, int]] = []
        for index in range(count):
            kind, flags, _, address, _, _, held, _ = struct.unpack_from("<IIQQQQQQ", table, index * size)
            self._segments.append((kind, flags, address, held))
        loads = [address for kind, _, address, _ in self._segments if kind == _LOAD]
        if not loads:
            raise ValueError("nothing of it is loaded")
        self._bias = base - min(loads) // PAGE * PAGE
        self._tags = dict(self._dynamic())

    def _dynamic(self) -> Iterator[tuple[int, int]]:
        for kind, _, address, held in self._segments:
            if kind == _DYNAMIC and held < _MOST:
                yield from struct.iter_unpack("<QQ", self._memory.read(address + self._bias, held // 16 * 16))

    def _table(self, tag: int) -> int:
        address = self._tags.get(tag, 0)
        # glibc's loader adds where the file is loaded, musl's does not.
        return address + self._bias if address < self._bias else address

    def gap(self) -> Gap | None:
        """The one behind its code."""
        for kind, flags, address, held in self._segments:
            if kind == _LOAD and flags & _EXECUTABLE:
                end = address + held + self._bias
                return Gap((end + 15) // 16 * 16, (end + PAGE - 1) // PAGE * PAGE)
        return None

    def symbol(self, name: str) -> int | None:
        """The address of what the file exports by this name."""
        found = self.extent(name)
        return None if found is None else found[0]

    def extent(self, name: str) -> tuple[int, int] | None:
        """The same with its size in bytes."""
        return self._by_gnu_hash(name) if _GNU_HASH in self._tags else self._by_hash(name)

    def _by_gnu_hash(self, name: str) -> tuple[int, int] | None:
        wanted = _gnu_hash(name)
        table = self._table(_GNU_HASH)
        buckets, first, bloom, _ = struct.unpack("<IIII", self._memory.read(table, 16))
        if not buckets or bloom > _MOST:
            return None
        start = table + 16 + 8 * bloom
        (index,) = struct.unpack("<I", self._memory.read(start + 4 * (wanted % buckets), 4))
        chains = start + 4 * buckets
        for number in range(index, index + _MOST if index >= first else index):
            (found,) = struct.unpack("<I", self._memory.read(chains + 4 * (number - first), 4))
            if found | 1 == wanted | 1:
                extent = self._defined(number, name)
                if extent is not None:
                    return extent
            if found & 1:
                return None
        return None

    def _by_hash(self, name: str) -> tuple[int, int] | None:
        table = self._table(_HASH)
        if not table:
            return None
        _, count = struct.unpack("<II", self._memory.read(table, 8))
        found = (self._defined(number, name) for number in range(min(count, _MOST)))
        return next((extent for extent in found if extent is not None), None)

    def _defined(self, number: int, name: str) -> tuple[int, int] | None:
        symbol = self._memory.read(self._table(_SYMTAB) + number * _SYMBOL_BYTES, _SYMBOL_BYTES)
        at, _, _, section, value, size = struct.unpack("<IBBHQQ", symbol)
        wanted = name.encode() + b"\0"
        if not section or not value or at + len(wanted) > self._tags.get(_STRSZ, 0):
            return None
        there = self._memory.read(self._table(_STRTAB) + at, len(wanted))
        return (value + self._bias, size) if there == wanted else None


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def bases(mappings: list[Mapping]) -> dict[str, int]:
    """Where each mapped file that has code begins, by its path."""
    begins: dict[str, int] = {}
    for mapping in mappings:
        if mapping.path and not mapping.offset:
            begins.setdefault(mapping.path, mapping.start)
    code = {mapping.path for mapping in mappings if "x" in mapping.permissions}
    return {path: start for path, start in begins.items() if path in code}


def python_bases(pid: int, mappings: list[Mapping]) -> list[int]:
    """Where what may be Python begins: the executable, then each libpython."""
    found = bases(mappings)
    executable = os.readlink(f"/proc/{pid}/exe")
    order = [path for path in found if path == executable]
    order += [path for path in found if path.rpartition("/")[2].startswith("libpython") and path != executable]
    return [found[path] for path in order]
