"""Hostile trainings and hostile scrapers: neither breaks what is exposed, and neither is waited for."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from memtui.wire import frames
from tests.support import programs
from tests.support.prometheus import promtool
from tests.support.serving import ROOT, Exposed, Served, require_library, serve_environment, serving

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_HOSTILE = 'a"} 1\nmemtui_ooms_total{run="b"} 9\\\x1b[31m\u202e\ud800'
_LISTENING = "0A"
_MOST = (1 << 63) - 1


@pytest.fixture
def environment(sockets: pathlib.Path) -> dict[str, str]:
    require_library()
    return serve_environment(sockets)


@pytest.fixture
def served(environment: dict[str, str]) -> Iterator[Served]:
    with serving(environment=environment) as found:
        yield found


# Trainings

_AGENT = """
import os, socket, sys, time
path = f"{os.environ['MEMTUI_RUNTIME_DIR']}/agent-{os.getpid()}.sock"
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
print("ready", flush=True)
data = sys.stdin.buffer.read()
while True:
    connection, _ = listener.accept()
    try:
        connection.sendall(data)
        while True:
            again = eval(sys.argv[1])
            connection.sendall(again) if again else time.sleep(0.1)
    except OSError:
        pass
"""


_EVENT = {"kind": "event", "name": "oom", "time_ns": 5, "step": 1, "phase": "forward", "device": "cuda:0"}
#: Events of some megabytes, as fast as they are taken.
_FLOOD = (
    "(lambda body: len(body).to_bytes(4, 'big') + body)("
    """b'{"kind":"event","name":"x","time_ns":1,"step":1,"phase":"","text":"' + b'y' * 3000000 + b'"}')"""
)


@contextlib.contextmanager
def agent(sockets: pathlib.Path, first: bytes, then: str = "b''", **variables: str) -> Iterator[int]:
    """A process with an agent's socket that says `first` to who comes, and `then` (Python) over and over; its pid."""
    environment = {**programs.plain_environment(), "MEMTUI_RUNTIME_DIR": str(sockets), **variables}
    with subprocess.Popen(
        [sys.executable, "-c", _AGENT, then], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdout.readline()
            child.stdin.write(first)
            child.stdin.close()
            yield child.pid
        finally:
            child.kill()


def hello(**changes: object) -> bytes:
    plain = {
        "kind": "hello",
        **{"protocol": frames.PROTOCOL, "agent": "1", "pid": 1, "python": "3", "torch": "2", "argv": ["x.py"]},
        **{"cwd": "/", "hostname": "h", "time_ns": 1, "wall_offset_ns": 0, "started_ns": 1},
        **changes,
    }
    return packed(plain)


def packed(plain: object) -> bytes:
    body = json.dumps(plain, separators=(",", ":")).encode()
    return len(body).to_bytes(4, "big") + body


def frame(sequence: int, **changes: object) -> bytes:
    now = time.monotonic_ns()
    plain: dict[str, object] = {"kind": "frame", "sequence": sequence, "time_ns": now, "late_ns": 0, "step": 1}
    plain |= {"phase": "forward", "phase_since_ns": now, "lost_frames": 0}
    figures: dict[str, object] = {"device": "cuda:0", "allocated_bytes": 5, "reserved_bytes": 7}
    for name, value in changes.items():
        (plain if name in plain else figures)[name] = value
    return packed({**plain, "devices": [figures]})


def test_hostile_labels_break_no_format(sockets: pathlib.Path, served: Served) -> None:
    """GIVEN names with quotes, line ends, escapes, surrogates and a megabyte, THEN every parser reads them."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    devices = [{"device": "cuda:0", "kind": "cuda", "name": _HOSTILE * 1000, "counters": "x", "uuid": _HOSTILE}]
    first = hello(argv=["/" + _HOSTILE], hostname=_HOSTILE, torch="x" * (1 << 20), python=_HOSTILE, devices=devices)
    first += frame(1) + packed({**_EVENT, "name": _HOSTILE, "phase": _HOSTILE})
    with agent(sockets, first, SLURM_JOB_ID='j\\"} 1\n\x1b[0m' + "y" * 100_000) as pid:
        told = served.once(lambda told: told.of("allocated_bytes", pid=str(pid)), "the figures")
        [sample] = told.of("allocated_bytes")
        assert sample.value == 5
        assert len(told.of("ooms_total", run="b")) == 0
        assert told.value("events_total", event="other") == 1
        for each in told.samples:
            assert all(len(value) <= 120 and value.isprintable() for value in each.labels.values()), each
        text = served.scrape(_OPENMETRICS)
        assert list(text_string_to_metric_families(text))
        # Advice on names is no complaint about the format.
        assert "error" not in promtool("check", "metrics", text=told.text)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n\r\n" * 100,
        b"\xff\xff\xff\xff",
        packed([1, 2]),
        hello() + packed({"kind": "frame"}),
        hello() + frame(1, allocated_bytes="many"),
        hello() + b"".join(frame(number, device=f"cuda:{number}") for number in range(1000)),
        hello() + frame(1, device="x" * (300 << 10)),
        hello() + b"".join(packed({**_EVENT, "device": f"cuda:{number}"}) for number in range(1000)),
        hello(devices=[{"device": f"cuda:{n}", "kind": "cuda", "name": "", "counters": ""} for n in range(100)]),
        hello()
        + b"".join(frame(each, phase=frames.PHASES[each], phase_since_ns=_MOST, time_ns=_MOST) for each in (1, 2)),
    ],
    ids=["http", "length", "list", "fields", "types", "names", "size", "events", "devices", "times"],
)
def test_an_agent_that_is_none_is_hung_up_on_and_counted(data: bytes, sockets: pathlib.Path, served: Served) -> None:
    with agent(sockets, data) as pid:
        told = served.once(lambda told: told.value("serve_refused_total", reason="agent_garbage"), "the count")
        assert told.state(pid) in {"silent", "live"}
    served.once(lambda told: told.state(pid) == "ended", "its end")


def test_an_agent_of_another_version_is_counted(sockets: pathlib.Path, served: Served) -> None:
    with agent(sockets, hello(protocol=frames.PROTOCOL + 1)):
        served.once(lambda told: told.value("serve_refused_total", reason="agent_version") == 1, "the count")


def test_gigabytes_and_slowness_hold_nothing_up(sockets: pathlib.Path, served: Served) -> None:
    """GIVEN an agent that sends without end, one that says a byte at a time and one that says nothing, THEN a fourth is
    read as ever, scrapes are answered, and memory stays small.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(agent(sockets, hello(), then=_FLOOD))
        stack.enter_context(agent(sockets, hello()[:10], then="b'x'"))
        stack.enter_context(agent(sockets, b""))
        pid = stack.enter_context(agent(sockets, hello() + frame(1)))
        served.once(lambda told: told.of("allocated_bytes", pid=str(pid)), "the one that is an agent")
        told = served.once(lambda told: len(told.of("state", state="silent")) >= 3, "the others")
        assert told.value("serve_agents") == 4
        for _ in range(30):
            served.scrape()
            time.sleep(0.1)
        status = pathlib.Path(f"/proc/{served.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
        assert int(line.split()[1]) < 150 << 10


def test_an_agent_that_falls_silent_is_told(sockets: pathlib.Path, served: Served) -> None:
    """GIVEN a process that lives and says nothing any more, THEN it is silent, and its last figures keep their time."""
    with agent(sockets, hello() + frame(1)) as pid:
        told = served.once(lambda told: told.of("allocated_bytes", pid=str(pid)), "its figures")
        when = told.value("frame_timestamp_seconds")
        told = served.once(lambda told: told.state(pid) == "silent", "its silence")
        assert told.value("frame_timestamp_seconds") == when
        assert told.value("allocated_bytes") == 5
        assert {each.value for each in told.of("ends_total")} == {0}


def test_a_rank_that_has_ended_goes_after_a_while(sockets: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memtui.serve import machine

    monkeypatch.setattr(machine, "_ENDED_NS", 3_000_000_000)

    async def watch() -> list[bool]:
        watched = machine.Machine()
        with agent(sockets, hello() + frame(1)) as pid:
            await watched.first_look(0.1)
            found = [not watched.ranks[pid].over]
        running = asyncio.ensure_future(watched.run())
        while not watched.ranks[pid].over:
            await asyncio.sleep(0.1)
        found.append(any(sample.name == "memtui_ends_total" for sample in await _samples(watched)))
        while watched.ranks:
            await asyncio.sleep(0.1)
        found.append(any(sample.name == "memtui_ends_total" for sample in await _samples(watched)))
        running.cancel()
        watched.close()
        return found

    assert asyncio.run(asyncio.wait_for(watch(), 60)) == [True, True, False]


async def _samples(watched: Any) -> list[Any]:
    await asyncio.sleep(0.3)  # what was told a moment ago is told again
    return [sample for family in await watched.families() for sample in family.samples]


def test_a_socket_of_another_kind_and_one_left_behind_are_no_agents(sockets: pathlib.Path, served: Served) -> None:
    (sockets / f"agent-{os.getpid()}.sock").write_text("no socket")
    with agent(sockets, b"") as pid:
        pass
    (sockets / "agent-1.sock").symlink_to(sockets / f"agent-{pid}.sock")
    told = served.once(lambda told: told.value("serve_refused_total", reason="agent_owner"), "the count")
    assert told.value("serve_agents") == 0


# Scrapers


def test_a_hundred_silent_connections_do_not_keep_a_scraper_out(served: Served) -> None:
    """GIVEN connections that say nothing, or a byte at a time, THEN a scrape is answered, and they are dropped."""
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(_connected(served)) for _ in range(150)]
        for connection in silent[:50]:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /metrics HT")
        assert served.exposed().value("serve_agents") == 0
        threads = pathlib.Path(f"/proc/{served.process.pid}/status").read_text()
        [line] = [line for line in threads.splitlines() if line.startswith("Threads")]
        assert int(line.split()[1]) <= 6
        for connection in silent:
            connection.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
    told = served.exposed()
    busy, slow = (told.value("serve_refused_total", reason=reason) or 0 for reason in ("busy", "slow"))
    assert busy + slow == 150


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(64) + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * (1 << 20),
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"nonsense\r\n\r\n",
    ],
    ids=["tls", "line", "lines", "words"],
)
def test_garbage_gets_no_metrics_and_is_counted(request_: bytes, served: Served) -> None:
    with _connected(served) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(request_)
        received = b""
        with contextlib.suppress(OSError):
            while data := connection.recv(4096):
                received += data
        assert b"200 OK" not in received
        assert b"memtui_" not in received
    assert served.exposed().value("serve_refused_total", reason="request")


def test_what_is_asked_for_otherwise(served: Served) -> None:
    def ask(head: str) -> bytes:
        with _connected(served) as connection:
            connection.sendall(head.encode() + b"\r\n\r\n")
            return b"".join(iter(lambda: connection.recv(4096), b""))

    assert ask("GET / HTTP/1.1").endswith(b"the metrics are at /metrics\n")
    assert ask("GET /etc/passwd HTTP/1.1").startswith(b"HTTP/1.1 404 ")
    assert ask("POST /metrics HTTP/1.1").startswith(b"HTTP/1.1 405 ")
    assert ask("GET /metrics?name[]=x HTTP/1.0").startswith(b"HTTP/1.1 200 ")


def test_a_scraper_that_does_not_take_its_answer_holds_nobody_up(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(_connected(served))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert served.exposed().value("serve_agents") == 0


def _connected(served: Served) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", served.port))
    connection.settimeout(30)
    return connection


# Where it listens, and who may scrape


def _listening(pid: int) -> set[str]:
    """The addresses on which a process listens, as /proc/net/tcp and tcp6 write them, without the port."""
    links = (os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd"))
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING and words[9] in inodes:
                found.add(words[1].partition(":")[0])
    return found


def test_it_listens_on_this_machine_alone_unless_told(environment: dict[str, str]) -> None:
    with serving(environment=environment) as served:
        assert _listening(served.process.pid) == {"0100007F"}
    assert served.errors == ""
    with serving(environment=environment, listen="0.0.0.0:0") as served:
        assert _listening(served.process.pid) == {"00000000"}
    assert served.errors.count("\n") == 1
    assert "anybody who reaches 0.0.0.0:0 can read this" in served.errors


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_all_addresses_of_both_kinds(environment: dict[str, str]) -> None:
    with serving(environment=environment, listen="[::]:0") as served:
        assert _listening(served.process.pid) == {"0" * 32}
        with _connected(served) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"200 OK" in connection.recv(4096)


def _run(*options: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtui", "serve", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_in_use_is_said_with_the_way_out(served: Served, environment: dict[str, str]) -> None:
    done = _run("--listen", f"127.0.0.1:{served.port}", environment=environment)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{served.port} is in use" in done.stderr
    assert f"memtui serve --listen 127.0.0.1:{served.port + 1}" in done.stderr


def test_ctrl_c_ends_it_as_it_does_elsewhere(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "memtui", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(2)
        _, errors = child.communicate(timeout=30)
    assert (child.returncode, errors) == (130, "")


def test_without_the_library_a_line_says_how_to_get_it(environment: dict[str, str]) -> None:
    code = "import sys; sys.modules['prometheus_client'] = None; from memtui.cli import main; sys.exit(main(['serve']))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "memtui: memtui serve needs prometheus-client: pip install 'memtui[prometheus]'\n"


def test_nothing_else_loads_it() -> None:
    others = "memtui.tui.app, memtui.agent.agent, memtui.commands.attach"
    code = f"import sys, {others}; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_password_is_asked_for(environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("scraper:secret\n")
    with serving("--password-file", str(file), environment=environment) as served:
        with pytest.raises(urllib.error.HTTPError) as raised:
            served.scrape()
        assert raised.value.code == 401
        with _connected(served) as connection:
            given = base64.b64encode(b"scraper:secret").decode()
            connection.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: Basic {given}\r\n\r\n".encode())
            text = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        assert Exposed(text.partition("\r\n\r\n")[2]).value("serve_refused_total", reason="auth") == 1


@pytest.fixture
def certificates(tmp_path: pathlib.Path) -> pathlib.Path:
    """A certificate and key for 127.0.0.1, signed by itself, which also serves as a client's."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_https_and_certificates_of_clients(environment: dict[str, str], certificates: pathlib.Path) -> None:
    """GIVEN TLS with a client's certificate, THEN who has one is answered, whatever others do or leave undone."""
    cert, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
    with serving("--certificate", cert, "--key", key, "--client-ca", cert, environment=environment) as served:
        assert served.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=cert)
        with pytest.raises(OSError, match=r"certificate required|alert|reset|closed"):
            served.scrape(context=context)
        context.load_cert_chain(cert, key)
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(_connected(served))  # in the midst of a handshake, for ever
            plain = stack.enter_context(_connected(served))
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            told = Exposed(served.scrape(context=context))
            assert told.value("build_info")


def test_a_key_alone_is_refused(environment: dict[str, str]) -> None:
    done = _run("--key", "key.pem", environment=environment)
    assert done.returncode == 1
    assert "--certificate FILE" in done.stderr


def test_the_unit_is_one(environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    done = _run("--unit", "--listen", "[::]:9000", "--auto", "my train.py", environment=environment)
    assert done.returncode == 0
    assert f'ExecStart={sys.executable} -m memtui serve --listen [::]:9000 --auto "my train.py"' in done.stdout
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "memtui-serve.service"
    unit.write_text(done.stdout)
    checked = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env={**environment, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
