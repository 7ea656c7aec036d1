"""What a Prometheus server may answer: as it should, wrongly, too much, too slowly, and not at all."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memtui.prometheus.address import parse_address
from memtui.prometheus.client import Client, Trust
from memtui.prometheus.errors import Interrupted, PrometheusError, Refused, Unreachable
from memtui.prometheus.selector import Selector, equal, one_of, parse_selector
from tests.support.answering import answering, trickling, vector, whole

_GOOD = vector(({"__name__": "up", "job": "memtui"}, "1"))


def error_of(answer: Callable[..., Any], **options: Any) -> PrometheusError:
    with answering(answer) as url, pytest.raises(PrometheusError) as caught:
        Client(parse_address(url), **options).query("up")
    return caught.value


def test_series_of_an_answer_and_the_servers_time() -> None:
    asked: list[dict[str, str]] = []

    def answer(name: str, given: dict[str, str]) -> Any:
        asked.append({"name": name, **given})
        return whole(_GOOD)

    with answering(answer) as url:
        client = Client(parse_address(url))
        assert client.query('up{job="memtui"}', 12.5) == [({"__name__": "up", "job": "memtui"}, 1.0)]
        assert client.time_s == 1_700_000_000.0
    assert asked[0]["name"] == "query"
    assert asked[0]["query"] == 'up{job="memtui"}'
    assert asked[0]["time"] == "12.500"


def test_a_packed_answer_is_unpacked() -> None:
    packed = gzip.compress(json.dumps(_GOOD).encode())
    with answering(lambda *_: whole(packed, Content_Encoding="gzip")) as url:
        assert len(Client(parse_address(url)).query("up")) == 1


def test_what_a_server_says_is_one_line() -> None:
    said = {"status": "error", "errorType": "bad_data", "error": "evil\nline \x1b[31m\u202ered"}
    assert str(error_of(lambda *_: whole(said, 400))).endswith(" refuses the query: evil line red")


def test_points_that_are_no_finite_numbers_are_left_out() -> None:
    values: list[Any] = ["NaN", "+Inf", "-Inf", None, [], {}, "five", "1e400", "2"]
    odd = vector(*(({"place": str(place)}, value) for place, value in enumerate(values)))
    with answering(lambda *_: whole(odd)) as url:
        assert [sample.value for sample in Client(parse_address(url)).query("up")] == [2.0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>a page</html>",
        b"\x00\xff\xfe" * 100,
        b"[" * 100_000,
        b"NaN",
        b'{"status": "success"}',
        b'{"status": "success", "data": []}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": []}}',
        b'{"status": "success", "data": {"resultType": "vector", "result": {}}}',
        b'{"status": "success", "data": {"resultType": "vector", "result": [1]}}',
        b'{"status": "fine", "data": null}',
        b'{"status": 7}',
    ],
)
def test_what_is_no_prometheus_is_told_so_in_one_line(body: bytes) -> None:
    error = error_of(lambda *_: whole(body))
    assert isinstance(error, Refused)
    assert "is no Prometheus server" in str(error)
    assert len(str(error).splitlines()) == 1


def test_labels_that_are_no_texts_are_left_out_and_long_ones_cut() -> None:
    labels: Any = {"run": 5, "rank": ["1"], "pid": "x" * 100_000, "job": "memtui"}
    for given, expected in ((labels, {"pid": "x" * 1_024, "job": "memtui"}), (None, {}), ("text", {})):
        with answering(lambda *_, given=given: whole(vector((given, "1")))) as url:
            assert Client(parse_address(url)).query("up")[0].labels == expected


def gigabytes() -> Iterator[bytes]:
    yield b'{"status": "success", "data": "'
    while True:
        yield b"x" * 65_536


@pytest.mark.parametrize("packed", [False, True])
def test_more_than_is_taken_ends_the_connection(packed: bool) -> None:
    if packed:
        bomb = gzip.compress(b"x" * (64 << 20))
        error = error_of(lambda *_: whole(bomb, Content_Encoding="gzip"), most_bytes=1 << 20)
    else:
        error = error_of(lambda *_: (200, {}, gigabytes()), most_bytes=1 << 20)
    assert isinstance(error, Refused)
    assert "sends more than 1 MiB" in str(error)


def test_an_answer_of_very_many_small_parts_is_not_taken_apart() -> None:
    parts = b'{"status": "success", "data": [' + b"[]," * 2_000_000 + b"[]]}"
    error = error_of(lambda *_: whole(parts))
    assert isinstance(error, Refused)
    assert "an answer of too many parts" in str(error)


def test_an_error_may_not_be_endless_either() -> None:
    assert isinstance(error_of(lambda *_: (400, {}, gigabytes())), Refused)


def test_a_server_that_trickles_is_given_up_on_in_time() -> None:
    error = error_of(lambda *_: (200, {}, trickling(json.dumps(_GOOD).encode(), 0.1)), seconds=0.5)
    assert isinstance(error, Unreachable)
    assert "has not answered within" in str(error)


def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match="cannot be reached: connection refused"):
        Client(parse_address("http://127.0.0.1:9")).query("up")


def test_the_servers_own_words_about_a_selector() -> None:
    said = {"status": "error", "errorType": "bad_data", "error": "1:5: parse error"}
    error = error_of(lambda *_: whole(said, 400))
    assert isinstance(error, Refused)
    assert "refuses the query: 1:5: parse error" in str(error)


@pytest.mark.parametrize(("status", "kind", "words"), [(401, Refused, "--user NAME"), (503, Unreachable, "not ready")])
def test_statuses_say_what_to_do(status: int, kind: type, words: str) -> None:
    error = error_of(lambda *_: whole("no", status))
    assert isinstance(error, kind)
    assert words in str(error)


def test_a_connection_that_was_closed_meanwhile_is_made_again() -> None:
    with answering(lambda *_: whole(_GOOD)) as url:  # HTTP/1.0: closes after each answer
        client = Client(parse_address(url))
        assert client.query("up")
        assert client.query("up")


def test_closing_ends_what_is_under_way() -> None:
    with answering(lambda *_: (200, {}, trickling(b"x" * 100, 0.2))) as url:
        client = Client(parse_address(url), seconds=60)
        threading.Timer(0.5, client.close).start()
        with pytest.raises(Interrupted):
            client.query("up")
        with pytest.raises(Interrupted):
            client.query("up")


# Who asks


def test_credentials_go_with_every_query() -> None:
    asked: list[str] = []

    def answer(_: str, given: dict[str, str]) -> Any:
        asked.append(given["authorization"])
        return whole(_GOOD)

    with answering(answer) as url:
        Client(parse_address(url.replace("//", "//me:se%3Acret@"))).query("up")
    assert asked == ["Basic bWU6c2U6Y3JldA=="]


def test_a_password_is_read_from_a_file_that_nobody_else_may_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o644)
    with pytest.raises(ValueError, match="others may read"):
        parse_address("http://host", "me", str(path))
    path.chmod(0o600)
    address = parse_address("http://host", "me", str(path))
    assert address.authorization == "Basic bWU6c2VjcmV0"
    both = tmp_path / "both"
    both.write_text("me:secret\n")
    both.chmod(0o600)
    assert parse_address("http://host", "", str(both)) == address
    assert "secret" not in repr(address)
    assert "bWU6c2VjcmV0" not in repr(address)


def test_a_password_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no password of me"):
        parse_address("http://host", "me")
    monkeypatch.setitem(os.environ, "MEMTUI_PROMETHEUS_PASSWORD", "secret")
    assert parse_address("http://host", "me").authorization == "Basic bWU6c2VjcmV0"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("prometheus", "http://prometheus:9090"),
        ("http://host", "http://host:80"),
        ("https://host/prom/", "https://host:443/prom"),
        ("http://host:9090/graph", "http://host:9090"),
        ("http://[::1]:9090", "http://[::1]:9090"),
    ],
)
def test_where_a_server_is(url: str, text: str) -> None:
    assert parse_address(url).text == text


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://host:x", "http://ho st", "http://host/?a=b", "http://h\n"]
)
def test_where_no_server_can_be(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_address(url)


def test_a_password_in_a_bad_url_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="no server") as caught:
        parse_address("ftp://me:secret@host")
    assert "secret" not in str(caught.value)


def test_an_https_server_is_checked(tmp_path: pathlib.Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=prometheus"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_text(certificate.read_text() + key.read_text())
    with answering(lambda *_: whole(_GOOD), both) as url:
        assert Client(parse_address(url), Trust(str(certificate))).query("up")
        with pytest.raises(Refused, match=r"has a certificate that cannot be checked .* --ca FILE"):
            Client(parse_address(url)).query("up")
        with pytest.raises(PrometheusError):
            Client(parse_address(url.replace("https", "http"))).query("up")
    with answering(lambda *_: whole(_GOOD)) as url, pytest.raises(Refused, match="does not speak TLS"):
        Client(parse_address(url.replace("http", "https"))).query("up")
    with pytest.raises(Refused, match=r"certificates in .* cannot be used"):
        Client(parse_address("https://host"), Trust(str(tmp_path / "none")))


# Which ranks


@pytest.mark.parametrize("text", ['run="gpt-7b",instance=~"node1.*"', '{run="gpt-7b", instance=~"node1.*"}'])
def test_a_selector_goes_into_every_query(text: str) -> None:
    selector = parse_selector(text)
    assert selector.of_ranks("memtui_state") == 'memtui_state{run="gpt-7b",instance=~"node1.*"}'
    assert selector.of_ranks("~memtui_.*") == '{__name__=~"memtui_.*",run="gpt-7b",instance=~"node1.*"}'
    assert selector.of_targets("up") == 'up{instance=~"node1.*"}'


@pytest.mark.parametrize(
    "text", ["run", "run=x", 'run="x"} or up{', '{run="x"', 'run="x",,', '__name__="up"', 'a="\n"']
)
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_selector(text)


def test_values_of_labels_cannot_leave_their_quotes() -> None:
    assert equal("run", 'a"b\\c\n') == 'run="a\\"b\\\\c\\n"'
    assert one_of("pid", ["1.5", 'a"|b']) == 'pid=~"1\\\\.5|a\\"\\\\|b"'
    assert Selector().text == ""
