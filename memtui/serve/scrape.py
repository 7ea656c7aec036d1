"""What a scraper gets: the metrics in the format that it takes, by prometheus_client's own application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import Any, Optional

from prometheus_client import CollectorRegistry, make_wsgi_app

from .access import is_authorised
from .listener import Request, Response

PATH = "/metrics"
_PAGE = f"memtui serve: the metrics are at {PATH}\n".encode()


class _Told:
    """Metrics that are there already, as a collector."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        return iter(self._families)


class Scrapes:
    """Answers requests. `families` gives the metrics; they are written out in `executor`, for that may take long."""

    def __init__(
        self,
        families: Callable[[], Awaitable[list[Any]]],
        executor: Executor,
        credentials: Optional[bytes],
        refused: Callable[[str], None],
    ) -> None:
        self._families, self._executor, self._credentials, self._refused = families, executor, credentials, refused

    async def answer(self, request: Request) -> Response:
        """The response."""
        if self._credentials is not None:
            given = request.headers.get("authorization", "")
            if not is_authorised(given, self._credentials):
                self._refused("auth")
                return Response("401 Unauthorized", [("WWW-Authenticate", 'Basic realm="memtui"')], b"")
        if request.method != "GET":
            return Response("405 Method Not Allowed", [("Allow", "GET")], b"")
        if request.path == "/":
            return Response("200 OK", [("Content-Type", "text/plain; charset=utf-8")], _PAGE)
        if request.path != PATH:
            return Response("404 Not Found", [], b"")
        families = await self._families()
        return await asyncio.get_running_loop().run_in_executor(self._executor, _write, families, request)


def _write(families: list[Any], request: Request) -> Response:
    registry = CollectorRegistry()
    registry.register(_Told(families))
    told: list[Any] = []
    environ = {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": request.path,
        "QUERY_STRING": "",
        "HTTP_ACCEPT": request.headers.get("accept", ""),
        "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
    }
    body = b"".join(make_wsgi_app(registry)(environ, lambda status, headers: told.extend((status, headers))))
    return Response(told[0], told[1], body)
