"""The code that is put into a target: in this process, where it can be seen to put everything back."""

from __future__ import annotations

import ctypes
import mmap
import platform

import pytest

from memtui.inject.code import REGISTERS, Code
from memtui.inject.image import Image, bases
from memtui.inject.maps import parse_maps, read_maps, with_address
from memtui.inject.memory import Memory
from memtui.inject.payload import Payload
from memtui.inject.process import Facts, _version
from memtui.inject.ptrace import Registers
from memtui.inject.stub import PASSING_OFFSET, RESIDENT, Parcel, Passing

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 only")
MAPS = """\
55e0-55e5 r--p 00000000 fe:00 12  /usr/bin/python3.11
55e5-55f0 r-xp 00005000 fe:00 12  /usr/bin/python3.11
7f00-7f10 rw-p 00000000 00:00 0
7f10-7f20 r--p 00000000 fe:00 13  /opt/a file/libc.so.6 (deleted)
7ffd-7fff rw-p 00000000 00:00 0   [stack]
"""


def test_maps_are_read_with_names_that_have_spaces() -> None:
    found = parse_maps(MAPS)
    assert [each.path for each in found] == [
        "/usr/bin/python3.11",
        "/usr/bin/python3.11",
        "",
        "/opt/a file/libc.so.6 (deleted)",
        "",
    ]
    assert bases(found) == {"/usr/bin/python3.11": 0x55E0}
    mapping = with_address(found, 0x55E7)
    assert mapping is not None
    assert mapping.permissions == "r-xp"


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/bin/python3.11", (3, 11)),
        ("/opt/lib/libpython3.9.so.1.0", (3, 9)),
        ("/opt/lib/libpython3.13t.so.1.0", (3, 13)),
        ("/opt/conda/lib/python3.12/lib-dynload/_json.cpython-312-x86_64-linux-gnu.so", (3, 12)),
        ("/usr/bin/sleep", None),
        ("/usr/bin/python3", None),
    ],
)
def test_the_version_is_known_by_what_is_mapped(path: str, version: object) -> None:
    assert _version([path]) == version
    assert Facts.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_symbols_are_found_in_memory() -> None:
    """As the dynamic linker finds them."""
    mappings = read_maps(__import__("os").getpid())
    with Memory(__import__("os").getpid()) as memory:
        path = next(path for path in bases(mappings) if path.rpartition("/")[2].startswith("libc.so"))
        image = Image(memory, bases(mappings)[path])
        libc = ctypes.CDLL(None)
        for name in ("getpid", "mmap", "strtol"):
            assert image.symbol(name) == ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
        assert image.symbol("memtui_no_such_function") is None
        gap = image.gap()
        assert gap is not None
        assert 0 <= gap.end - gap.start < mmap.PAGESIZE


def test_the_passing_code_comes_back_with_everything_as_it_was() -> None:
    """GIVEN nobody fills the memory that it maps, as when the tool was killed, THEN it unmaps it and goes back."""
    area = mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    stack = base + 0xF000
    end = base + 0x4000
    kept = {"rbx": 3, "rbp": 5, "r8": 8, "r9": 9, "r10": 10, "r11": 11, "r12": 12, "r15": 15, "rsi": 6, "rcx": 1}
    registers = Registers().copy(rsp=stack, rip=end, rax=77, rdi=base + 0x5000, eflags=0x202 | 1, **kept)
    passing = Passing(base + PASSING_OFFSET, 1, registers, extended_bytes=4096, size=1 << 16, add=0, initialized=0)
    # A function that saves what it must, goes through the passing code and stores what it comes back with.
    entry = Code(base + 0x3000)
    entry.field("there", passing.start)
    entry.field("stack", stack)
    entry.label("entry")
    entry.raw("53 55 4154 4155 4156 4157")
    entry.load("rax", "stack")
    entry.raw("488920")  # mov [rax], rsp: a frame pointer to come back to
    entry.to("ff25", "there")
    back = Code(end)
    stored = ("rax", "rbx", "rcx", "rsi", "rbp", "r8", "r9", "r10", "r11", "r12", "r15")
    for place, name in enumerate(stored):
        number = REGISTERS.index(name)
        back.raw(bytes([0x48 | number >> 3 << 2, 0x89, (number & 7) << 3 | 7 | 0x40, 8 * place]).hex())
    back.raw("9c 58 48894758")  # pushfq; pop rax; mov [rdi+88], rax
    back.raw("48896760")  # mov [rdi+96], rsp
    back.raw("488b2424")  # mov rsp, [rsp]
    back.raw("415f 415e 415d 415c 5d 5b c3")
    for code, address in ((RESIDENT, 0), (passing.machine_code, PASSING_OFFSET), (entry.made(), 0x3000)):
        area[address : address + len(code)] = code
    area[0x4000 : 0x4000 + len(back.made())] = back.made()
    before = len(read_maps(__import__("os").getpid()))
    ctypes.CFUNCTYPE(None)(entry.address("entry"))()
    assert len(read_maps(__import__("os").getpid())) <= before + 1
    found = [int.from_bytes(area[0x5000 + 8 * place : 0x5008 + 8 * place], "little") for place in range(13)]
    assert found[:11] == [77, *(kept[name] for name in stored[1:])]
    assert found[11] & 1  # the carry flag
    assert found[12] == stack


def test_the_text_has_its_own_addresses_and_one_length() -> None:
    payload = Payload(70, [65534])
    address = 0x7F0000000000
    contents = payload.contents(address)
    text = contents[: contents.index(b"\0")].decode()
    compile(text, "text", "exec")
    assert f"{address + Parcel.TEXT_OFFSET + len(text) + 1:#020x}" in text
    assert len(contents) == len(payload.contents(0))
    assert contents.endswith(payload.archive)
    assert Parcel.TEXT_OFFSET + len(contents) <= payload.parcel_bytes
    compile(payload.whole_text(), "text", "exec")
