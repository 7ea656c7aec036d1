"""The parts of `memtui serve` that decide something by themselves."""

from __future__ import annotations

import asyncio
import base64
import os
import pathlib
import socket

import pytest

from memtui.serve.access import AccessError, is_authorised, read_credentials, tls_context
from memtui.serve.address import Address, read_address
from memtui.serve.entering import matches
from memtui.serve.life import life_of, outcome_of_exception, outcome_of_signal
from memtui.serve.listener import MOST_CONNECTIONS, Listener, Request, Response, read_request
from memtui.serve.unit import unit


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9797", Address("127.0.0.1", 9797)),
        ("[::]:9797", Address("::", 9797)),
        ("[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
        ("gpu-box:0", Address("gpu-box", 0)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert read_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "9797", ":9797", "::1:9797", "host:", "host:65536", "host:-1", "host:٣", "[::1]"])
def test_what_is_no_address_is_said_with_one_that_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"write ADDRESS:PORT, 127\.0\.0\.1:9797 or \[::\]:9797"):
        read_address(text)


def test_which_addresses_only_this_machine_reaches() -> None:
    assert all(Address(host, 1).is_loopback for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(Address(host, 1).is_loopback for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.org"))


def test_credentials_come_from_a_private_file_alone(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.write_text("scraper:geheim:mit:doppelpunkten\n")
    file.chmod(0o644)
    with pytest.raises(AccessError, match=f"can be read by others: chmod 600 {file}"):
        read_credentials(str(file))
    file.chmod(0o600)
    credentials = read_credentials(str(file))
    assert credentials == b"scraper:geheim:mit:doppelpunkten"
    for text in ("nobody", "user:", ":password", "", "a:b\nc:d\n"):
        file.write_text(text)
        with pytest.raises(AccessError, match="one line USER:PASSWORD"):
            read_credentials(str(file))
    with pytest.raises(AccessError, match="No such file"):
        read_credentials(str(tmp_path / "none"))


def test_who_is_authorised() -> None:
    def header(text: bytes, scheme: str = "Basic") -> str:
        return f"{scheme} {base64.b64encode(text).decode()}"

    credentials = "scraper:pässword".encode()
    assert is_authorised(header(credentials), credentials)
    assert is_authorised(header(credentials, "basic"), credentials)
    wrong = (
        "",
        "Basic",
        "Basic !!!",
        header(b"scraper:"),
        header(b"a" * 5000),
        header(credentials, "Bearer"),
        "Basic é",
    )
    assert not any(is_authorised(each, credentials) for each in wrong)


def test_a_certificate_that_is_none_is_said_in_a_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    for name in ("none.pem", "missing.pem"):
        with pytest.raises(AccessError, match=name) as raised:
            tls_context(str(tmp_path / name), None, None)
        assert "\n" not in str(raised.value)


def test_requests_are_read_and_garbage_is_none() -> None:
    request = read_request(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nAccept:  text/plain \r\n\r\n")
    assert request is not None
    assert (request.method, request.path, request.query) == ("GET", "/metrics", "a=b")
    assert request.headers == {"host": "x", "accept": "text/plain"}
    for garbage in (
        b"\x16\x03\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET http://x/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nx\r\n\r\n",
    ):
        assert read_request(garbage) is None


def test_one_that_has_asked_and_must_go_hears_why() -> None:
    """GIVEN more scrapers than are answered at once, THEN the first hear 503, and the others are answered."""
    more = 3
    refused: list[str] = []

    async def run() -> list[bytes]:
        listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        listening.setblocking(False)
        asked, goes_on = 0, asyncio.Event()

        async def answer(_: Request) -> Response:
            nonlocal asked
            asked += 1
            if asked == MOST_CONNECTIONS + more:
                goes_on.set()
            await goes_on.wait()
            return Response("200 OK", [], b"figures")

        async def scrape() -> bytes:
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            heard = await reader.read()
            writer.close()
            return heard

        serving = asyncio.ensure_future(Listener(listening, answer, refused.append, None).run())
        scrapes = []
        for _ in range(MOST_CONNECTIONS + more):
            scrapes.append(asyncio.ensure_future(scrape()))
            before = asked
            while asked == before:
                await asyncio.sleep(0)
        heard = await asyncio.gather(*scrapes)
        serving.cancel()
        return heard

    heard = asyncio.run(asyncio.wait_for(run(), 60))
    assert all(each.startswith(b"HTTP/1.1 503 ") and each.endswith(b"\r\n\r\n") for each in heard[:more])
    assert all(each.endswith(b"figures") for each in heard[more:])
    assert refused == ["busy"] * more


def test_patterns_are_names_or_of_whole_command_lines() -> None:
    line = "/usr/bin/python train.py --lr 1"
    assert matches(line, ())
    assert matches(line, ("eval.py", "train.py"))
    assert matches(line, ("*python train.py*",))
    assert not matches(line, ("eval",))
    assert not matches(line, ("train.p?",))


def test_a_process_by_its_stat() -> None:
    life = life_of(os.getpid())
    assert life is not None
    assert life.started > 0
    assert not life.over
    assert life_of(1 << 30) is None
    child = os.fork()
    if not child:
        os.kill(os.getpid(), 9)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    life = life_of(child)
    assert life is not None
    assert (life.over, life.signal) == (True, 9)
    os.waitpid(child, 0)


def test_how_a_process_ended_by_what_it_said() -> None:
    assert outcome_of_exception(None) == "ok"
    assert outcome_of_exception("OutOfMemoryError") == outcome_of_exception("torch.OutOfMemoryError") == "oom"
    assert outcome_of_exception("ValueError") == "exception"
    assert outcome_of_exception("KeyboardInterrupt") == "interrupted"


def test_how_a_process_ended_that_has_said_nothing() -> None:
    assert {number: outcome_of_signal(number) for number in (0, 2, 9, 11, 15)} == {
        **{0: "silent", 2: "interrupted", 15: "interrupted"},
        **{9: "killed", 11: "killed"},
    }


def test_a_unit_quotes_what_systemd_would_read() -> None:
    text = unit(["/opt/my python/bin/python", "-m", "memtui", "serve", "--auto", 'a%b$c"d\\'])
    [line] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    assert line == 'ExecStart="/opt/my python/bin/python" -m memtui serve --auto "a%%b$$c\\"d\\\\"'
