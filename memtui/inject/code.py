"""A little assembler: x86-64 instructions with labels, and fields of data before them."""

from __future__ import annotations

import struct

#: In the order of their numbers.
REGISTERS = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{number}" for number in range(8, 16)))
_NUMBERS = {name: number for number, name in enumerate(REGISTERS)}


class Code:
    """Instructions that will stand at `base`. Only what refers to a label or a field is put together here."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._bytes = bytearray()
        self._labels: dict[str, int] = {}
        self._references: list[tuple[int, str]] = []  # where four bytes of distance to a label are to be put in

    def label(self, name: str) -> None:
        """What comes next has a name."""
        self._labels[name] = len(self._bytes)

    def address(self, name: str) -> int:
        """Where a label is."""
        return self.base + self._labels[name]

    def field(self, name: str, value: int) -> None:
        """A word of data."""
        self.label(name)
        self._bytes += struct.pack("<Q", value & (2**64 - 1))

    def raw(self, text: str) -> None:
        """Instructions in hexadecimal."""
        self._bytes += bytes.fromhex(text)

    def number(self, register: str, value: int) -> None:
        """mov r32, value: the upper half becomes 0."""
        number = _NUMBERS[register]
        self._bytes += b"\x41" * (number >> 3) + bytes([0xB8 | number & 7]) + struct.pack("<I", value & 0xFFFFFFFF)

    def load(self, register: str, name: str) -> None:
        """mov r64, [field]."""
        self._relative(register, 0x8B, name)

    def point(self, register: str, name: str) -> None:
        """lea r64, [field]."""
        self._relative(register, 0x8D, name)

    def _relative(self, register: str, opcode: int, name: str) -> None:
        number = _NUMBERS[register]
        self._bytes += bytes([0x48 | number >> 3 << 2, opcode, (number & 7) << 3 | 5])
        self._refer(name)

    def to(self, opcode: str, name: str) -> None:
        """An instruction that ends in the distance to a label: jumps, `call [field]`, `push [field]`."""
        self.raw(opcode)
        self._refer(name)

    def system(self, number: int) -> None:
        """A system call whose arguments are in place."""
        self.number("rax", number)
        self.raw("0f05")

    def _refer(self, name: str) -> None:
        self._references.append((len(self._bytes), name))
        self._bytes += bytes(4)

    def made(self) -> bytes:
        """All of it, with every distance put in."""
        done = bytearray(self._bytes)
        for at, name in self._references:
            struct.pack_into("<i", done, at, self._labels[name] - at - 4)
        return bytes(done)
