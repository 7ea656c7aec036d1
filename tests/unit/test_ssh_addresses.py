"""Hosts as they are typed, in host files, and in Slurm's lists."""

from __future__ import annotations

import pytest

from memtui.sources.ssh_address import (
    Address,
    AddressError,
    Target,
    parse_host_file,
    parse_slurm,
    parse_target,
)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("ssh://box", Target(Address("box"))),
        ("ssh://box/", Target(Address("box"))),
        ("ssh://me@box:2222/4711", Target(Address("box", "me", 2222), 4711)),
        ("ssh://first.last@corp@gpu-1.example.org", Target(Address("gpu-1.example.org", "first.last@corp"))),
        ("ssh://[2001:db8::1]:22/5", Target(Address("2001:db8::1", None, 22), 5)),
        ("ssh://me@[fe80::1%eth0]", Target(Address("fe80::1%eth0", "me"))),
        ("ssh://10.0.0.7", Target(Address("10.0.0.7"))),
    ],
)
def test_targets(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "box",
        "http://box",
        "ssh://",
        "ssh:///12",
        "ssh://-oProxyCommand=touch",
        "ssh://-l@box",
        "ssh://a b",
        "ssh://a;b",
        "ssh://a`b`",
        "ssh://$(b)",
        "ssh://a\nb",
        "ssh://a\x1b[31m",
        "ssh://bóx",
        "ssh://me;@box",
        "ssh://box:0",
        "ssh://box:65536",
        "ssh://box:",
        "ssh://box:٣",
        "ssh://box/0",
        "ssh://box/-1",
        "ssh://box/1/2",
        "ssh://box/99999999999999999999",
        "ssh://[::1",
        "ssh://[::1]x",
        "ssh://[box]",
    ],
)
def test_what_is_no_target(text: str) -> None:
    """Told in one line, which has it in quotes."""
    with pytest.raises(AddressError) as caught:
        parse_target(text)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_label_and_a_url() -> None:
    """What is shown, and what can be typed again."""
    assert Address("box", "me", 22).label == "box:22"
    assert Address("::1", None, 22).label == "[::1]:22"
    for address in (Address("box", "me", 22), Address("::1"), Address("a.b", "c")):
        assert parse_target(address.url).address == address


def test_a_host_file() -> None:
    """As mpirun, deepspeed and machinefiles have it."""
    text = "# nodes\ngpu01 slots=8\n\n  me@gpu02:2222 slots=4 max_slots=8 # the old one\ngpu01\nssh://gpu03\n"
    assert parse_host_file(text) == [Address("gpu01"), Address("gpu02", "me", 2222), Address("gpu03")]
    with pytest.raises(AddressError, match="line 2: "):
        parse_host_file("gpu01\n-oX\n")
    assert parse_host_file("") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
        ("a[9-11]", ["a9", "a10", "a11"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
        ("n[1]-ib,n[1]-ib", ["n1-ib"]),
        ("", []),
    ],
)
def test_slurm_lists(text: str, names: list[str]) -> None:
    assert [address.host for address in parse_slurm(text)] == names


@pytest.mark.parametrize(
    "text", ["a[1-", "a]1[", "a[[1]]", "a[2-1]", "a[x]", "a[]", "a[1-9999999]", "-a[1]", "a[1],b c"]
)
def test_what_is_no_slurm_list(text: str) -> None:
    with pytest.raises(AddressError):
        parse_slurm(text)
