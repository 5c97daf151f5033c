"""A stand-in for the API server, at the wire."""

import base64
import contextlib
import json
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.ports import free_port

OPERATOR = "system:serviceaccount:llm-system:llmendpoint-operator"


class ApiStub:
    """List and watch of the three kinds, and reviews of tokens, as the API server speaks them. `down()` refuses connections.

    `users`: whose each token is. `reviews` are counted when they come, `answered` when they have been. `refused`: plural -> the
    status with which its lists are answered."""

    PLURALS = ("llmendpoints", "endpointslices", "llmkeys")

    def __init__(self) -> None:
        self.port = free_port()
        self.lock = threading.Lock()
        self.objects: dict[str, dict[str, dict[str, Any]]] = {plural: {} for plural in self.PLURALS}
        self.version = 1
        self.users: dict[str, str] = {}
        self.reviews = self.answered = 0
        self.watchers: list[tuple[str, queue.Queue[dict[str, Any] | None]]] = []
        self.lists = 0
        self.refused: dict[str, int] = {}
        self.silent_deletes: set[str] = set()
        self.server: ThreadingHTTPServer | None = None
        self.up()

    def up(self) -> None:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body that waits for 40 ms has not been sent when it is counted

            def do_GET(self) -> None:
                stub.answer(self)

            def do_POST(self) -> None:
                stub.review(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        self.end_watches()

    def end_watches(self) -> None:
        with self.lock:
            for _, events in self.watchers:
                events.put(None)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        plural, asked = path.rsplit("/", 1)[1], dict(parse_qsl(query))
        if plural in self.refused:
            request.send_error(self.refused[plural])
            return None
        if "watch=true" in query:
            return self.watch(request, plural)
        limit, start = int(asked.get("limit", 10**9)), int(asked.get("continue", 0))
        with self.lock:
            self.lists += 1
            items = list(self.objects[plural].values())
            more = {"continue": str(start + limit)} if len(items) > start + limit else {}
            body = {
                "metadata": {"resourceVersion": str(self.version), **more},
                "items": items[start : start + limit],
            }
        data = json.dumps(body).encode()
        request.send_response(200)
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
        return None

    def review(self, request: BaseHTTPRequestHandler) -> None:
        assert request.path == "/apis/authentication.k8s.io/v1/tokenreviews"
        spec = json.loads(request.rfile.read(int(request.headers["content-length"])))["spec"]
        self.reviews += 1
        user = self.users.get(spec["token"])
        status: dict[str, Any] = {"authenticated": False}
        if user is not None:
            status = {"authenticated": True, "user": {"username": user}, "audiences": spec["audiences"]}
        data = json.dumps({"status": status}).encode()
        request.send_response(201)
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
        self.answered += 1

    def token(self, user: str, seconds: float = 3600) -> str:
        """A new one, as the API server makes them."""
        claims = json.dumps({"exp": time.time() + seconds, "jti": len(self.users)}).encode()
        token = f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"
        self.users[token] = user
        return token

    def watch(self, request: BaseHTTPRequestHandler, plural: str) -> None:
        events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        since = int(request.path.partition("resourceVersion=")[2].partition("&")[0])
        with self.lock:
            for item in self.objects[plural].values():
                if int(item["metadata"]["resourceVersion"]) > since:
                    events.put({"type": "MODIFIED", "object": item})
            self.watchers.append((plural, events))
        request.send_response(200)
        request.send_header("connection", "close")
        request.end_headers()
        with contextlib.suppress(OSError):
            while (event := events.get()) is not None:
                request.wfile.write(json.dumps(event).encode() + b"\n")
                request.wfile.flush()
        request.close_connection = True
        with self.lock:
            self.watchers.remove((plural, events))

    def put(self, plural: str, body: dict[str, Any]) -> None:
        with self.lock:
            self.version += 1
            body["metadata"]["resourceVersion"] = str(self.version)
            self.objects[plural][body["metadata"]["name"]] = body
            self._tell(plural, {"type": "MODIFIED", "object": body})

    def delete(self, plural: str, name: str, silently: bool = False) -> None:
        """`silently`: no watch hears of it, as when the event is lost."""
        with self.lock:
            self.version += 1
            body = self.objects[plural].pop(name)
            body["metadata"]["resourceVersion"] = str(self.version)
            if not silently:
                self._tell(plural, {"type": "DELETED", "object": body})

    def expire(self) -> None:
        """Tell every watch that its version is gone, as after a compaction."""
        with self.lock:
            for _, events in self.watchers:
                events.put({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
                events.put(None)

    def _tell(self, plural: str, event: dict[str, Any]) -> None:
        for watched, events in self.watchers:
            if watched == plural:
                events.put(event)

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "stub",
                    "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
                    "clusters": [{"name": "stub", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "users": [{"name": "stub", "user": {"token": "none"}}],
                }
            )
        )
        return path
