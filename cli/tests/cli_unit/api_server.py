"""A small HTTP server that plays the API server, and a kubeconfig that names it."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from .samples import Json, serving


class ApiServer(ThreadingHTTPServer):
    """Answers everything with `answer`, or with what `answers` has for a part of the path; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: tuple[int, Any] = (200, serving())
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.hang_up = False
        self.token: str | None = None
        """Requests with another are not authorised. None: no matter which."""
        self.warnings: list[str] = []
        """Headers of the answers to writes."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_json = "json" in self.headers.get("Content-Type", "json")
        read = json.loads(body or "null") if is_json else body
        self.server.asked.append((self.command, self.path, dict(self.headers), read))
        given = next((self.server.answers[part] for part in self.server.answers if part in self.path), None)
        status, content = given or self.server.answer
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            status, content = 401, status_text("Unauthorized")
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for warning in self.server.warnings if self.command == "PATCH" else ():
            self.send_header("Warning", warning)
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = self.server.hang_up

    do_GET = do_PATCH = do_POST = do_DELETE = respond  # noqa: N815 - the standard library's names

    def log_message(self, *_: object) -> None:
        return


def write_config(
    path: Path, server: str = "http://127.0.0.1:1", user: Json | None = None, **cluster: Any
) -> str:
    config = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
            {"name": "two", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def status_text(message: str) -> Json:
    return {"kind": "Status", "message": message}
