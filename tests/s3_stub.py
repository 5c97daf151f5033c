"""An object store on 127.0.0.1: so much of Amazon S3's HTTP API as it takes to list and download one model."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from llmendpoint_server.weights.sigv4 import Keys, signed_headers
from tests.file_server import Faults, send_range

BUCKET = "models"
PAGE = 3
"""Objects on one page of a listing."""


@dataclass
class ObjectStore:
    """`objects` by key, all in one bucket. With `keys` only requests that they signed are answered."""

    objects: dict[str, bytes]
    keys: Keys | None = None
    region: str = "eu-north-1"
    faults: Faults = field(default_factory=Faults)
    down: bool = False
    requests: list[str] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)
    """Authorization of each request"""
    address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = ThreadingHTTPServer((self.address, 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """For AWS_ENDPOINT_URL."""
        return f"http://{self.address}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    store: ObjectStore
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        store, parts = self.store, urlsplit(self.path)
        store.requests.append(self.path)
        store.headers.append(self.headers.get("Authorization"))
        path = unquote(parts.path)
        if store.down:
            self._answer(503, b"")
        elif store.keys is not None and not self._is_signed(store.keys):
            self._answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        elif not path.startswith(f"/{BUCKET}/"):
            self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif path == f"/{BUCKET}/":
            self._list(dict(parse_qsl(parts.query)))
        else:
            self._object(path.removeprefix(f"/{BUCKET}/"))

    def _is_signed(self, keys: Keys) -> bool:
        said = self.headers.get("Authorization", "")
        names = said.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        try:
            at = datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except (KeyError, TypeError, ValueError):
            return False
        computed = ("host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token")
        headers = {name: self.headers[name] for name in names if name not in computed}
        url = f"http://{self.headers['Host']}{self.path}"
        return signed_headers(url, headers, keys, self.store.region, at)["Authorization"] == said

    def _list(self, query: dict[str, str]) -> None:
        keys = sorted(key for key in self.store.objects if key.startswith(query.get("prefix", "")))
        start = int(query.get("continuation-token", 0))
        shown = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>&quot;{_md5(self.store.objects[key])}&quot;</ETag>"
            f"<Size>{len(self.store.objects[key])}</Size></Contents>"
            for key in keys[start : start + PAGE]
        )
        more = start + PAGE < len(keys)
        token = f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else ""
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        body = f'<ListBucketResult xmlns="{namespace}">{shown}{token}</ListBucketResult>'
        self._answer(200, body.encode())

    def _object(self, key: str) -> None:
        content = self.store.objects.get(key)
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif self.headers.get("If-Match", f'"{_md5(content)}"') != f'"{_md5(content)}"':
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            send_range(self, self.store.faults, key, content, {"ETag": f'"{_md5(content)}"'})

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
