"""Two real servers with real engines, and the real gateway in front of both."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.tests.bounds import PATIENCE, wait_for
from gateway.tests.engine_process import Backend
from gateway.tests.harness import Gateway, running_gateway
from server.tests.server_process import ServerProcess

FLAGS = (
    *("--served-model-name", "team/fuzz", "--served-model-name", "fuzz"),
    *("--max-model-len", "384", "--max-num-seqs", "16", "--kv-cache-memory", "32Mi", "--drain-timeout", "10"),
)
MIB = 1 << 20


@dataclass(frozen=True)
class Targets:
    """Where requests go, and the processes that must outlive them."""

    gateway: Gateway
    servers: tuple[ServerProcess, ...]

    @property
    def urls(self) -> dict[str, str]:
        return {"server": self.servers[0].url, "gateway": self.gateway.url}

    def pids(self) -> dict[str, int]:
        """Every process that strangers' requests reach, by name."""
        found = {"picker": self.gateway.picker.pid, "envoy": self.gateway.envoy.pid}
        for number, server in enumerate(self.servers):
            found[f"server {number} API"] = server.process.pid
            for child in children(server.process.pid):
                found[f"server {number} engine {child}"] = child
        return found

    def alive(self) -> bool:
        ends = [server.process.poll() for server in self.servers]
        return {*ends, self.gateway.picker.poll(), self.gateway.envoy.poll()} == {None}

    def left(self) -> dict[str, str]:
        """What is not as it was before the first request; empty: all is well again."""
        wrong = {}
        for number, server in enumerate(self.servers):
            if (code := server.process.poll()) is not None:
                wrong[f"server {number}"] = f"left with {code}: {server.lines[-1:]}"
                continue
            load = read(f"{server.url}/load")
            if any(load[name] for name in ("waiting", "running", "outstanding_tokens", "kv_usage")):
                wrong[f"server {number} /load"] = json.dumps(load)
            if (status := server.status("/ready")) != 200:
                wrong[f"server {number} /ready"] = str(status)
        for name in ("picker", "envoy"):
            if (code := getattr(self.gateway, name).poll()) is not None:
                wrong[name] = f"left with {code}"
        if not {"picker", "envoy"} & wrong.keys():
            wrong |= {f"gateway {name}": text for name, text in gateway_left(self.gateway).items()}
        return wrong

    def settle(self) -> dict[str, str]:
        """What is still wrong when no more than PATIENCE has passed since the last request."""
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not self.left(), "every request has ended")
        return self.left()


def gateway_left(gateway: Gateway) -> dict[str, str]:
    endpoint = gateway.known("fuzz")
    wrong = {} if endpoint["breaker"] == "closed" else {"breaker": endpoint["breaker"]}
    for replica in endpoint["replicas"]:
        if replica["in_flight"] or replica["breaker"] != "closed":
            wrong[replica["address"]] = json.dumps(replica)
    return wrong


def read(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        content: dict[str, Any] = json.load(answer)
    return content


def children(pid: int) -> list[int]:
    """Empty for a process that is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sorted({int(child) for task in tasks for child in (task / "children").read_text().split()})
    except FileNotFoundError:
        return []


def resident_mib(pid: int) -> float:
    """0 for a process that is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except FileNotFoundError:
        return 0.0
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / MIB


class Replica(Backend):
    """A server of ours in the place of a stub engine."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__("fuzz", port=int(server.url.rpartition(":")[2]))
        self.server = server

    def kill(self) -> None:
        self.server.stop()


@contextlib.contextmanager
def running_targets() -> Iterator[Targets]:
    """Both servers ready, and the gateway following the endpoint team/fuzz."""
    with contextlib.ExitStack() as stack:
        servers = tuple(stack.enter_context(ServerProcess(*FLAGS)) for _ in range(2))
        gateway = stack.enter_context(running_gateway())
        for server in servers:
            server.wait_ready()
        gateway.endpoint(*(Replica(server) for server in servers), name="fuzz")
        targets = Targets(gateway, servers)
        wait_for(lambda: http.client.HTTPConnection("127.0.0.1", gateway.port), "the gateway answers")
        yield targets
