"""The real gateway on this machine: the two commands, a stub of the API server, and stub engines.

Only the API server and the engines are stood in for, at the wire. Everything that is started is ended by its own
process object.
"""

import contextlib
import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HOLD_SECONDS = 3
PATIENCE = 30.0  # seconds: a bound for what takes milliseconds on an idle machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """The first true value of `condition`; connection errors count as not yet."""
    until, last = time.monotonic() + seconds, "false"
    while time.monotonic() < until:
        try:
            if value := condition():
                return value
        except (OSError, http.client.HTTPException) as error:
            last = repr(error)
        time.sleep(0.01)
    raise TimeoutError(f"after {seconds} s still not: {what} (last: {last})")


class ApiStub:
    """List and watch of the two kinds, as the API server speaks them. `down()` refuses connections."""

    PLURALS = ("llmendpoints", "endpointslices")

    def __init__(self) -> None:
        self.port = free_port()
        self.lock = threading.Lock()
        self.objects: dict[str, dict[str, dict[str, Any]]] = {plural: {} for plural in self.PLURALS}
        self.version = 1
        self.watchers: list[tuple[str, queue.Queue[dict[str, Any] | None]]] = []
        self.lists = 0
        self.silent_deletes: set[str] = set()
        self.server: ThreadingHTTPServer | None = None
        self.up()

    def up(self) -> None:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                stub.answer(self)

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
        plural = path.rsplit("/", 1)[1]
        if "watch=true" in query:
            return self.watch(request, plural)
        with self.lock:
            self.lists += 1
            body = {
                "metadata": {"resourceVersion": str(self.version)},
                "items": list(self.objects[plural].values()),
            }
        data = json.dumps(body).encode()
        request.send_response(200)
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
        return None

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


@dataclass
class Backend:
    """A stub engine process (backend.py says what it can do)."""

    name: str
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()

    def start(self) -> "Backend":
        command = [sys.executable, str(HERE / "backend.py"), str(self.port), self.name, *self.options]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_for(lambda: self.stats() is not None, f"backend {self.name} answers")
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stats(self) -> dict[str, Any]:
        """{"requests", "aborted", "closed_by_peer", "running"}"""
        with urllib.request.urlopen(f"http://{self.address}/stub/stats", timeout=PATIENCE) as answer:
            stats: dict[str, Any] = json.load(answer)
            return stats

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Gateway:
    """Picker and Envoy as their commands start them; without a kubeconfig beside a stub of the API server."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self.folder = folder
        self.api = ApiStub()
        self.port, self.http_port = free_port(), free_port()
        self.socket = folder / "control.sock"
        self.kubeconfig = kubeconfig or self.api.kubeconfig(folder)
        self.backends: list[Backend] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.endpoints = 0
        self.start_picker()
        self.start_envoy()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_picker(self) -> None:
        self.picker = self._start(
            "picker",
            "--http-port",
            str(self.http_port),
            "--kubeconfig",
            str(self.kubeconfig),
            "--hold-seconds",
            str(HOLD_SECONDS),
        )

    def start_envoy(self) -> None:
        self.envoy = self._start("envoy", "--port", str(self.port))

    def _start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        arguments = [
            "-m",
            "llmendpoint_gateway",
            command,
            "--socket",
            str(self.socket),
            "--host",
            "127.0.0.1",
        ]
        with (self.folder / f"{command}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def log(self, command: str) -> str:
        return (self.folder / f"{command}.log").read_text()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=PATIENCE) as answer:
            return json.load(answer)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.get("/state")
        return state

    def metric(self, name: str, absent: float | None = None) -> float:
        """`absent`: what one is that does not exist yet; None: an error."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith(f"llmendpoint_gateway_{name} ")]
        if not found and absent is not None:
            return absent
        return float(found[0].rsplit(" ", 1)[1])

    def resident_bytes(self) -> int:
        """Of the picker."""
        pages = Path(f"/proc/{self.picker.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def ready(self) -> "Gateway":
        wait_for(
            lambda: self.get("/readyz")["ready"], f"the gateway is ready; its log:\n{self.log('picker')}"
        )
        wait_for(
            lambda: socket.create_connection(("127.0.0.1", self.port), 1).close() or True, "Envoy listens"
        )
        return self

    def admin(self, path: str) -> str:
        """Envoy's admin interface, on its Unix socket."""
        connection = http.client.HTTPConnection("envoy")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(PATIENCE)
        connection.sock.connect(str(self.folder / "envoy-admin.sock"))
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def clusters(self) -> set[str]:
        """The revisions' clusters that Envoy holds."""
        names = {line.partition("::")[0] for line in self.admin("/clusters").splitlines()}
        return names - {"control", "picker"}

    def settled(self) -> None:
        """Envoy has acknowledged all that the picker knows, and the picker all that the stub holds."""

        def done() -> bool:
            state = self.state()
            listed = {f"team/{name}" for name in self.api.objects["llmendpoints"]}
            return (
                state["synced"]
                and state["connected"]
                and state["generation"] == state["acknowledged"]
                and set(state["endpoints"]) == listed
            )

        wait_for(done, "the acknowledged generation is the present one")

    def backend(self, name: str, *options: str) -> Backend:
        backend = Backend(name, options=options).start()
        self.backends.append(backend)
        return backend

    def endpoint(self, *backends: Backend, name: str = "", revision: str = "r1", **more: Any) -> str:
        """An endpoint at a revision with these replicas, routed; returns its name."""
        self.endpoints += 1
        name = name or f"chat{self.endpoints}"
        for backend in backends:
            self.replica(name, revision, backend)
        self.activate(name, revision, **more)
        self.routed(name, revision, *backends)
        return name

    def activate(
        self,
        name: str,
        revision: str | None,
        names: tuple[str, ...] = (),
        created: str = "",
        replicas: int = 0,
        **spec: Any,
    ) -> None:
        """`replicas` is what the spec asks for: with 0, nobody waits for one. `spec`: further fields of it."""
        body: dict[str, Any] = {
            "metadata": {
                "namespace": "team",
                "name": name,
                "creationTimestamp": created or "2026-01-01T00:00:00Z",
            },
            "spec": {
                "model": {"source": "embedded://demo", **({"servedNames": names} if names else {})},
                "replicas": replicas,
                **spec,
            },
            "status": {"activeRevision": revision},
        }
        self.api.put("llmendpoints", body)

    def traffic(
        self, name: str, epoch: int, draining: tuple[str, ...] = (), blue: str = "", **weights: int
    ) -> None:
        """Write status.traffic to an endpoint that is there; the active revision follows the most weight.

        `blue`: what a rollout goes back to.
        """
        body = json.loads(json.dumps(self.api.objects["llmendpoints"][name]))
        shares = [{"revision": revision, "weight": weight} for revision, weight in weights.items()]
        traffic = {"epoch": epoch, "weights": shares, "draining": list(draining)}
        body["status"] = {"activeRevision": max(weights, key=lambda r: weights[r]), "traffic": traffic}
        if blue:
            body["status"]["rollout"] = {"state": "Observing", "blue": blue}
        self.api.put("llmendpoints", body)

    def follows(self, name: str, epoch: int) -> None:
        """Wait until /state reports this epoch for the endpoint."""
        wait_for(lambda: self.known(name)["epoch"] == epoch, f"{name} follows epoch {epoch}")

    def known(self, name: str) -> dict[str, Any]:
        """The endpoint in /state."""
        endpoint: dict[str, Any] = self.state()["endpoints"][f"team/{name}"]
        return endpoint

    def revisions(self, name: str) -> dict[str, dict[str, int]]:
        """The counters of /revisions by revision."""
        counters: dict[str, dict[str, int]] = self.get(f"/revisions/team/{name}")["revisions"]
        return counters

    def replica(
        self, name: str, revision: str, backend: Backend, ready: bool = True, terminating: bool = False
    ) -> None:
        body = {
            "metadata": {
                "namespace": "team",
                "name": f"{name}-{revision}-{backend.port}",
                "labels": {"llmendpoint.io/endpoint": name, "llmendpoint.io/revision": revision},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": backend.port}],
            "endpoints": [
                {
                    "addresses": ["127.0.0.1"],
                    "conditions": {"ready": ready, "terminating": terminating},
                    "targetRef": {"kind": "Pod", "name": f"{backend.name}-{backend.port}"},
                }
            ],
        }
        self.api.put("endpointslices", body)

    def remove_replica(self, name: str, revision: str, backend: Backend, silently: bool = False) -> None:
        self.api.delete("endpointslices", f"{name}-{revision}-{backend.port}", silently)

    def routed(self, name: str, revision: str | None, *backends: Backend) -> None:
        """Wait until exactly these replicas of this revision are ready in /state, and acknowledged."""

        def done() -> bool:
            state = self.state()
            endpoint = state["endpoints"].get(f"team/{name}")
            if endpoint is None or endpoint["activeRevision"] != revision:
                return False
            ready = {r["address"] for r in endpoint["replicas"] if r["ready"] and r["revision"] == revision}
            return state["generation"] == state["acknowledged"] and ready == {b.address for b in backends}

        wait_for(done, f"{name} is routed to {[b.address for b in backends]}")

    def in_flight(self, name: str) -> dict[str, int]:
        replicas = self.known(name)["replicas"]
        return {r["address"]: r["in_flight"] for r in replicas if r["in_flight"]}

    def children_of_picker(self) -> list[str]:
        tasks = Path(f"/proc/{self.picker.pid}/task").iterdir()
        return [child for task in tasks for child in (task / "children").read_text().split()]

    def kill_picker(self) -> None:
        self.picker.kill()
        self.picker.wait()

    @contextlib.contextmanager
    def picker_hung(self) -> Iterator[None]:
        self.picker.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.picker.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for backend in self.backends:
            backend.kill()
        for process in self.processes:
            process.kill()
            process.wait()
        self.api.down()


@contextlib.contextmanager
def running_gateway(kubeconfig: Path | None = None) -> Iterator[Gateway]:
    # A short path: a Unix socket's may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        gateway = Gateway(Path(folder), kubeconfig)
        try:
            yield gateway.ready()
        except BaseException:
            sys.stderr.write(f"picker:\n{gateway.log('picker')[-4000:]}\n")
            if (gateway.folder / "envoy.log").exists():
                sys.stderr.write(f"envoy:\n{gateway.log('envoy')[-4000:]}\n")
            raise
        finally:
            gateway.close()


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
