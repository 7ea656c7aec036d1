"""An HTTP server that answers as it is told to, well or badly."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional
from urllib.parse import parse_qs

#: What is asked ("query" or "query_range") and its parameters to (status, headers, pieces of the body).
Answer = Callable[[str, dict[str, str]], tuple[int, dict[str, str], Iterator[bytes]]]


def whole(answer: Any, status: int = 200, **headers: str) -> tuple[int, dict[str, str], Iterator[bytes]]:
    """An answer in one piece: JSON, text or bytes."""
    body = answer if isinstance(answer, bytes) else answer.encode() if isinstance(answer, str) else None
    return status, dict(headers), iter([json.dumps(answer).encode() if body is None else body])


def vector(*series: tuple[dict[str, str], Any]) -> Any:
    """What Prometheus says of series at an instant."""
    result = [{"metric": labels, "value": [1_700_000_000.0, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@contextlib.contextmanager
def answering(answer: Answer, certificate: Optional[pathlib.Path] = None) -> Iterator[str]:
    """Its URL; it ends with the block, whatever is under way. With a certificate and its key in a file, over TLS."""
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            asked = {name: values[0] for name, values in given.items()}
            asked["authorization"] = self.headers.get("Authorization", "")
            status, headers, pieces = answer(self.path.rpartition("/")[2], asked)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            with contextlib.suppress(OSError):
                for piece in pieces:
                    if ended.is_set():
                        return
                    self.wfile.write(piece)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def trickling(body: bytes, seconds: float) -> Iterator[bytes]:
    """A byte now and then."""
    for place in range(len(body)):
        time.sleep(seconds)
        yield body[place : place + 1]
