"""What a shared object asks of others, read from the few pages that say so."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB = 0, 1, 5, 6
_DT_GNU_HASH, _DT_VERSYM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_DT_HASH = 4
_PT_LOAD, _PT_DYNAMIC = 1, 2
_SYMBOL_BYTES = 24


@dataclass(frozen=True)
class Import:
    """One undefined symbol, with the SONAME and the version it is bound to, or empty texts."""

    name: str
    soname: str
    version: str


@dataclass(frozen=True)
class SharedObject:
    """The DT_NEEDED entries of one ELF file, and its undefined symbols."""

    needed: tuple[str, ...]
    imports: tuple[Import, ...]


def read_shared_object(path: str | os.PathLike[str]) -> SharedObject:
    """Read a 64-bit little-endian ELF file's dynamic section.

    Raises `ValueError` for any other file.  Maps the file instead of reading it: torch's libraries
    are hundreds of megabytes, and the tables in question a few pages.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
        if image[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{os.fspath(path)} is not a 64-bit little-endian ELF file")
        return _Reader(image).read()


class _Reader:
    def __init__(self, image: mmap.mmap) -> None:
        self._image = image
        self._segments: list[tuple[int, int, int]] = []  # address, file offset, file size
        self._dynamic: dict[int, int] = {}
        self._needed_offsets: list[int] = []
        self._read_program_headers()

    def _read_program_headers(self) -> None:
        (table,) = struct.unpack_from("<Q", self._image, 32)
        entry_bytes, count = struct.unpack_from("<HH", self._image, 54)
        dynamic = None
        for index in range(count):
            at = table + index * entry_bytes
            kind, _flags, offset, address, _physical, size = struct.unpack_from("<IIQQQQ", self._image, at)
            if kind == _PT_LOAD:
                self._segments.append((address, offset, size))
            elif kind == _PT_DYNAMIC:
                dynamic = offset, size
        if dynamic is not None:
            self._read_dynamic(*dynamic)

    def _read_dynamic(self, offset: int, size: int) -> None:
        for at in range(offset, offset + size, 16):
            tag, value = struct.unpack_from("<QQ", self._image, at)
            if tag == _DT_NULL:
                return
            if tag == _DT_NEEDED:
                self._needed_offsets.append(value)
            else:
                self._dynamic.setdefault(tag, value)

    def _offset(self, address: int) -> int:
        for start, offset, size in self._segments:
            if start <= address < start + size:
                return address - start + offset
        raise ValueError(f"no segment holds address {address:#x}")

    def _text(self, offset: int) -> str:
        start = self._offset(self._dynamic[_DT_STRTAB]) + offset
        return self._image[start : self._image.find(b"\0", start)].decode()

    def read(self) -> SharedObject:
        if _DT_STRTAB not in self._dynamic:
            return SharedObject((), ())
        needed = tuple(self._text(offset) for offset in self._needed_offsets)
        return SharedObject(needed, tuple(self._imports()))

    def _imports(self) -> Iterator[Import]:
        if _DT_SYMTAB not in self._dynamic:
            return
        versions = self._needed_versions()
        symbols = self._offset(self._dynamic[_DT_SYMTAB])
        versym = self._offset(self._dynamic[_DT_VERSYM]) if _DT_VERSYM in self._dynamic else None
        for index in range(1, self._undefined_bound()):
            name, _info, _other, section = struct.unpack_from("<IBBH", self._image, symbols + index * _SYMBOL_BYTES)
            if section or not name:
                continue
            soname = version = ""
            if versym is not None:
                (number,) = struct.unpack_from("<H", self._image, versym + 2 * index)
                soname, version = versions.get(number & 0x7FFF, ("", ""))
            yield Import(self._text(name), soname, version)

    def _undefined_bound(self) -> int:
        # A GNU hash table covers the defined symbols only, and they come last: everything before its
        # first is undefined.  That spares the other few hundred thousand of libtorch_cuda.so.
        if _DT_GNU_HASH in self._dynamic:
            return int(struct.unpack_from("<I", self._image, self._offset(self._dynamic[_DT_GNU_HASH]) + 4)[0])
        if _DT_HASH in self._dynamic:
            return int(struct.unpack_from("<I", self._image, self._offset(self._dynamic[_DT_HASH]) + 4)[0])
        return 0

    def _needed_versions(self) -> dict[int, tuple[str, str]]:
        """Version number -> (SONAME, version name)."""
        found: dict[int, tuple[str, str]] = {}
        if _DT_VERNEED not in self._dynamic:
            return found
        at = self._offset(self._dynamic[_DT_VERNEED])
        for _ in range(self._dynamic.get(_DT_VERNEEDNUM, 0)):
            _version, count, file, first, following = struct.unpack_from("<HHIII", self._image, at)
            entry = at + first
            for _ in range(count):
                _hash, _flags, number, name, step = struct.unpack_from("<IHHII", self._image, entry)
                found[number & 0x7FFF] = (self._text(file), self._text(name))
                entry += step
            at += following
        return found
