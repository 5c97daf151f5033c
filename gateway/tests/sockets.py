"""WebSockets through a gateway, with engines that are simulated."""

import json

import pytest

from gateway.tests.engine_process import Backend, Simulator
from gateway.tests.harness import Gateway
from tests.web_socket import Caller, Closed

CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def engine(gateway: Gateway, *options: str) -> Backend:
    simulator = Simulator("demo", options=options).start()
    gateway.backends.append(simulator)
    return simulator


def open_sockets(gateway: Gateway, name: str) -> list[int]:
    """Of each replica."""
    return sorted(replica["sockets"] for replica in gateway.known(name)["replicas"])


def at(gateway: Gateway, name: str, backend: Backend) -> int:
    """Of one replica."""
    [found] = [r for r in gateway.known(name)["replicas"] if r["address"] == backend.address]
    return int(found["sockets"])


def refused(gateway: Gateway, path: str, **headers: str) -> tuple[int, str]:
    with pytest.raises(Closed) as closed:
        Caller(gateway, path, **headers)
    return closed.value.code, json.loads(closed.value.body)["error"]["code"] if closed.value.body else ""
