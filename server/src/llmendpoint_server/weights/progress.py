"""How far a download is, and a page that reports it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Progress:
    """Progress in bytes; shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.state = "waiting"
        self.bytes = 0
        self.total = 0

    def begin(self, total: int) -> None:
        """The total size is known."""
        with self._lock:
            self.state, self.total = "downloading", total

    def add(self, count: int) -> None:
        """Bytes have arrived, or (below 0) were discarded."""
        with self._lock:
            self.bytes += count

    def done(self) -> None:
        """The download is complete."""
        with self._lock:
            self.state = "done"

    def as_json(self) -> dict[str, Any]:
        """The JSON of docs/contribute/contracts.md."""
        with self._lock:
            return {"state": self.state, "bytes": self.bytes, "total": self.total}


@contextmanager
def told(progress: Progress, port: int | None, host: str = "0.0.0.0") -> Iterator[int | None]:
    """Serve `GET /progress` for as long as the context lasts. Yields the port; without a port it serves nothing."""
    if port is None:
        yield None
        return
    handler = type("Handler", (_Handler,), {"progress": progress})
    server = ThreadingHTTPServer((host, port), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    progress: Progress
    timeout = 10

    def do_GET(self) -> None:
        known = self.path == "/progress"
        body = json.dumps(self.progress.as_json() if known else {"error": "the page is /progress"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
