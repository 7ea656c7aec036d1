"""A Prometheus server's query API over one connection, each answer bounded in size and time."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional
from urllib.parse import urlencode

from memtui.analysis.text import clean

from .address import Address
from .errors import Interrupted, PrometheusError, Refused, Unreachable

#: The most that an answer may come to: one of 8,192 ranks is some 40 MiB.
MOST_BYTES = 64 << 20
#: Of the signs that divide it: a small answer may be made of so many parts that they take gigabytes.
MOST_PARTS = 3_000_000
#: Of an answer that is an error.
_MOST_WORDS = 64 << 10
#: Series of an answer, and points of a series (Prometheus's own limit).
MOST_SERIES, MOST_POINTS = 300_000, 11_000
_PIECE = 1 << 16
_LONGEST_LABEL = 1_024
_SECONDS = 10.0


class Sample(NamedTuple):
    """A series at one instant: its labels, and its value."""

    labels: dict[str, str]
    value: float


class Track(NamedTuple):
    """A series over a time: its labels, and its points as (Unix time in seconds, value)."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Trust:
    """What an https server is checked by: the machine's certificates, or those in the file `ca`."""

    ca: str = ""

    def context(self) -> ssl.SSLContext:
        """Raises Refused where the file cannot be used."""
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise Refused(f"the certificates in {self.ca} cannot be used: {error.strerror or error}") from None


class Client:
    """Asks one server. For one thread; `close` may be called from another one, and ends what is under way."""

    def __init__(
        self,
        address: Address,
        trust: Optional[Trust] = None,
        *,
        seconds: float = _SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`seconds` is how long an answer may take, from its beginning to its end. Raises Refused for a bad `trust`."""
        self.address, self.seconds, self._most_bytes = address, seconds, most_bytes
        self._context = (trust or Trust()).context() if address.secure else None
        self._connection: Optional[http.client.HTTPConnection] = None
        self._closed = threading.Event()
        self.time_s: Optional[float] = None  # the server's, of the newest answer with a figure in it
        self.received_bytes = 0

    def query(self, expression: str, at_s: Optional[float] = None) -> list[Sample]:
        """The series of an expression at an instant, at the server's now without one; raises PrometheusError."""
        given = {"query": expression} if at_s is None else {"query": expression, "time": f"{at_s:.3f}"}
        found = []
        for entry in self._series("query", given, "vector"):
            point = _point(entry.get("value"))
            if point is not None:
                self.time_s = point[0]
                found.append(Sample(_labels(entry), point[1]))
        return found

    def query_range(self, expression: str, start_s: float, end_s: float, step_s: float) -> list[Track]:
        """The series of an expression between two instants, a point every `step_s`; raises PrometheusError."""
        times = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{max(step_s, 0.001):.3f}"}
        found = []
        for entry in self._series("query_range", {"query": expression, **times}, "matrix"):
            values = entry.get("values")
            if not isinstance(values, list) or len(values) > MOST_POINTS:
                raise Refused(_no_prometheus(self.address, "a series without points, or with too many"))
            points = [point for point in map(_point, values) if point is not None]
            found.append(Track(_labels(entry), points))
        return found

    def close(self) -> None:
        """Ends the connection, and what is under way on it; nothing can be asked any more."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            _shut(connection.sock)

    def _series(self, name: str, given: dict[str, str], kind: str) -> Iterator[dict[str, Any]]:
        data = self._data(name, given)
        series = data.get("result") if isinstance(data, dict) and data.get("resultType") == kind else None
        if not isinstance(series, list) or len(series) > MOST_SERIES:
            raise Refused(_no_prometheus(self.address, f"no {kind}, or too many series"))
        for entry in series:
            if not isinstance(entry, dict):
                raise Refused(_no_prometheus(self.address, "series of another form"))
            yield entry

    def _data(self, name: str, given: dict[str, str]) -> Any:
        status, body = self._answer(f"{self.address.prefix}/api/v1/{name}", urlencode(given))
        if sum(map(body.count, (b"[", b"{", b","))) > MOST_PARTS:
            raise Refused(_no_prometheus(self.address, "an answer of too many parts"))
        try:
            answer = json.loads(body, parse_constant=_no_number)
        except (ValueError, RecursionError):
            answer = None
        if status in (401, 403):
            hint = "--user NAME, with the password in --password-file FILE" if status == 401 else "it may not be asked"
            raise Refused(f"{self.address.text} wants credentials ({status}): {hint}")
        if not isinstance(answer, dict) or answer.get("status") not in ("success", "error"):
            if status in (502, 503, 504):
                raise Unreachable(f"{self.address.text} is not ready ({status})")
            raise Refused(_no_prometheus(self.address, f"status {status}, and no answer of its query API"))
        if answer["status"] == "error":
            said = " ".join(clean(str(answer.get("error")), 300).split())
            if answer.get("errorType") in ("timeout", "canceled", "unavailable", "internal"):
                raise Unreachable(f"{self.address.text} could not answer: {said}")
            raise Refused(f"{self.address.text} refuses the query: {said}")
        return answer.get("data")

    def _answer(self, path: str, body: str) -> tuple[int, bytes]:
        """A status and what was said; asks again once where a connection that was kept has been closed meanwhile."""
        end = time.monotonic() + self.seconds
        kept = self._connection is not None
        try:
            return self._ask(path, body, end)
        except Unreachable:
            if not kept or self._closed.is_set() or time.monotonic() > end:
                raise
            return self._ask(path, body, end)

    def _ask(self, path: str, body: str, end: float) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept-Encoding": "gzip"}
        if self.address.authorization is not None:
            headers["Authorization"] = self.address.authorization
        guard: Optional[threading.Timer] = None
        try:
            connection = self._connect(end)
            # A socket's own time-out begins anew with every byte: one that trickles would keep us for ever.
            guard = threading.Timer(max(0.0, end - time.monotonic()), _shut, (connection.sock,))
            guard.daemon = True
            guard.start()
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            limit = self._most_bytes if answer.status == 200 else _MOST_WORDS
            found = answer.status, self._read(answer, limit)
            if self._closed.is_set() or time.monotonic() >= end:
                raise TimeoutError  # a connection that was cut short may look like a whole answer
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            if self._closed.is_set():
                raise Interrupted("nobody waits for it any more") from None
            raise self._trouble(error, late=time.monotonic() >= end) from None
        except PrometheusError:
            self._drop()
            raise
        finally:
            if guard is not None:
                guard.cancel()
        if answer.will_close:
            self._drop()
        return found

    def _connect(self, end: float) -> http.client.HTTPConnection:
        if self._closed.is_set():
            raise Interrupted("nobody waits for it any more")
        left = max(0.05, end - time.monotonic())
        connection = self._connection
        if connection is None:
            host, port = self.address.host, self.address.port
            if self._context is not None:
                connection = http.client.HTTPSConnection(host, port, timeout=left, context=self._context)
            else:
                connection = http.client.HTTPConnection(host, port, timeout=left)
            connection.connect()
            self._connection = connection
        elif connection.sock is not None:
            connection.sock.settimeout(left)
        return connection

    def _read(self, answer: http.client.HTTPResponse, limit: int) -> bytes:
        """What is said, unpacked, as long as it is not too much."""
        unpack = zlib.decompressobj(31) if answer.getheader("Content-Encoding", "").lower() == "gzip" else None
        pieces: list[bytes] = []
        size = 0
        while piece := answer.read1(_PIECE):
            self.received_bytes += len(piece)
            try:
                said = piece if unpack is None else unpack.decompress(piece, limit + 1 - size)
            except zlib.error:
                raise Refused(_no_prometheus(self.address, "what it sends cannot be unpacked")) from None
            size += len(said)
            if size > limit:
                raise Refused(
                    f"{self.address.text} sends more than {limit >> 20 or 1} MiB: --query selects fewer ranks"
                )
            pieces.append(said)
        answer.close()  # else one of a known length counts as not read
        return b"".join(pieces)

    def _trouble(self, error: Exception, *, late: bool) -> PrometheusError:
        where = self.address.text
        if isinstance(error, ssl.SSLCertVerificationError):
            return Refused(f"{where} has a certificate that cannot be checked ({error.verify_message}): --ca FILE")
        if isinstance(error, ssl.SSLError):
            return Refused(f"{where} does not speak TLS as this machine does: {error.reason or error}")
        if late or isinstance(error, TimeoutError):
            return Unreachable(f"{where} has not answered within {self.seconds:.0f} s")
        if isinstance(error, socket.gaierror):
            return Unreachable(f"{where} cannot be reached: no machine is known by the name {self.address.host}")
        if isinstance(error, http.client.HTTPException) and not isinstance(error, http.client.RemoteDisconnected):
            return Refused(_no_prometheus(self.address, "it does not speak HTTP"))
        reason = getattr(error, "strerror", None) or "it closed the connection"
        return Unreachable(f"{where} cannot be reached: {str(reason)[:120].lower()}")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()


def _shut(connected: Optional[socket.socket]) -> None:
    """Ends what waits for a socket, in another thread."""
    if connected is not None:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)


def _no_prometheus(address: Address, why: str) -> str:
    return f"{address.text} is no Prometheus server: {why}"


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _labels(entry: dict[str, Any]) -> dict[str, str]:
    """Label names and values; what is none of these is left out, and what is too long cut."""
    given = entry.get("metric")
    if not isinstance(given, dict):
        return {}
    for value in given.values():
        if not isinstance(value, str) or len(value) > _LONGEST_LABEL:
            return {key: each[:_LONGEST_LABEL] for key, each in given.items() if isinstance(each, str)}
    return given


def _point(plain: Any) -> Optional[tuple[float, float]]:
    """A point; None where it is no number that is finite."""
    try:
        time_s, value = plain
        point = float(time_s), float(value)
    except (TypeError, ValueError):
        return None
    return point if math.isfinite(point[0]) and math.isfinite(point[1]) and abs(point[0]) < 1e11 else None
