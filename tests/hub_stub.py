"""A model hub: so much of Hugging Face's HTTP API as it takes to resolve and download one model."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.file_server import Faults, send_range

MODEL = "acme/demo"
PAGE = 5
"""Files on one page of a listing."""


@dataclass
class Hub:
    """`commits` are folders with the model's files; `main` is the commit that the branch points to now."""

    commits: dict[str, Path]
    main: str
    requests: list[str] = field(default_factory=list)
    """paths that were asked for"""
    down: bool = False
    token: str = ""
    """that requests must carry; empty: none"""
    faults: Faults = field(default_factory=Faults)
    redirects: dict[str, str] = field(default_factory=dict)
    """where files lie that are somewhere else"""
    model: str = MODEL
    address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer((self.address, 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://{self.address}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append(path)
        if self.hub.down:
            self._refuse(503, "")
            return
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._refuse(401, "GatedRepo")
            return
        api, tree, resolve = (
            f"/api/models/{self.hub.model}/revision/",
            f"/api/models/{self.hub.model}/tree/",
            f"/{self.hub.model}/resolve/",
        )
        if path.startswith(api):
            self._describe(path.removeprefix(api))
        elif path.startswith(tree):
            self._list(path.removeprefix(tree))
        elif path.startswith(resolve):
            revision, _, name = path.removeprefix(resolve).partition("/")
            self._file(revision, name)
        else:
            self._refuse(404, "RepoNotFound")

    def _commit(self, revision: str) -> str | None:
        commit = self.hub.main if revision == "main" else revision
        return commit if commit in self.hub.commits else None

    def _describe(self, revision: str) -> None:
        commit = self._commit(revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound")
            return
        about: dict[str, Any] = {"id": self.hub.model, "sha": commit, "private": False, "tags": []}
        self._send(json.dumps(about).encode(), {"Content-Type": "application/json"})

    def _list(self, revision: str) -> None:
        commit = self._commit(revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound")
            return
        files = [_entry(path) for path in sorted(self.hub.commits[commit].iterdir())]
        page = int(dict(parse_qsl(urlsplit(self.path).query)).get("page", 0))
        headers = {"Content-Type": "application/json"}
        if len(files) > (page + 1) * PAGE:
            headers["Link"] = f'<{self.hub.url}{urlsplit(self.path).path}?page={page + 1}>; rel="next"'
        self._send(json.dumps(files[page * PAGE : (page + 1) * PAGE]).encode(), headers)

    def _file(self, revision: str, name: str) -> None:
        commit = self._commit(revision)
        path = self.hub.commits[commit] / name if commit else None
        if commit is None or path is None or not path.is_file():
            self._refuse(404, "RevisionNotFound" if commit is None else "EntryNotFound")
            return
        if name in self.hub.redirects:
            self.send_response(302)
            self.send_header("Location", self.hub.redirects[name])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = path.read_bytes()
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_etag(content)}"'}
        send_range(self, self.hub.faults, name, content, headers)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _etag(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: Path) -> dict[str, Any]:
    """Weights are large files, as on a real hub: what is in git is a pointer, and the content has a SHA-256."""
    content = path.read_bytes()
    entry = {"type": "file", "path": path.name, "size": len(content), "oid": _etag(content)}
    if path.suffix == ".safetensors":
        large = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        entry |= {"oid": "0" * 40, "lfs": large}
    return entry
