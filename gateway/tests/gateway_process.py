"""Picker and Envoy as their commands start them, and what they tell of themselves."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from gateway.tests.api_stub import OPERATOR
from gateway.tests.bounds import PATIENCE, resident_bytes, wait_for
from tests.ports import free_port

HOLD_SECONDS = 3


# The command, with other bounds than those that it has for everybody.
BOUNDED = """
import json, sys
from llmendpoint_gateway.serve.envoy import process as envoy
from llmendpoint_gateway.core.envoy import bounds
for name, value in json.loads(sys.argv.pop(1)).items():
    assert hasattr(bounds, name), name
    setattr(bounds, name, value)
envoy.memory_limit = lambda: bounds.DEFAULT_MEMORY_BYTES
from llmendpoint_gateway.__main__ import main
main()
"""


class GatewayProcess:
    """The two processes; `close` ends them. `folder` holds their sockets and logs. `bounds`: other values for names of
    core/envoy/bounds.py in both; whatever this machine has, Envoy's memory limit is DEFAULT_MEMORY_BYTES."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        batch_service: str | None = None,
        picker_flags: tuple[str, ...] = (),
        authentication: str = "off",
        **bounds: Any,
    ) -> None:
        self.folder, self.kubeconfig, self.bounds = folder, kubeconfig, bounds
        self.port, self.http_port = free_port(), free_port()
        self.batch_service, self.picker_flags = batch_service, picker_flags
        self.authentication = authentication
        self.socket = folder / "control.sock"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start_picker()
        self.start_envoy()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_picker(self) -> None:
        reach = (
            "--http-port",
            str(self.http_port),
            "--kubeconfig",
            str(self.kubeconfig),
            "--operator",
            OPERATOR,
        )
        self.picker = self._start("picker", *reach, "--hold-seconds", str(HOLD_SECONDS), *self.picker_flags)

    def start_envoy(self) -> None:
        batches = ("--batch-service", self.batch_service) if self.batch_service else ()
        self.envoy = self._start("envoy", "--port", str(self.port), *batches)

    def _start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        program = ["-m", "llmendpoint_gateway"]
        if command == "envoy" or self.bounds:
            program = ["-c", BOUNDED, json.dumps(self.bounds)]
        arguments = [
            *program,
            command,
            "--socket",
            str(self.socket),
            "--host",
            "127.0.0.1",
            "--authentication",
            self.authentication,
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
        return resident_bytes(self.picker.pid)

    def ready(self) -> Self:
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
        return names - {"control", "picker", "large-bodies"}

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
        for process in self.processes:
            process.kill()
            process.wait()
