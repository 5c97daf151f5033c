"""A reader of a gateway's stream of demand."""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway


class Lines:
    """A reader of the stream; `endpoints` is what it knows."""

    def __init__(self, response: httpx.Response) -> None:
        self.first: dict[str, Any] = {}
        self.endpoints: dict[str, Any] = {}
        self.arrivals: list[float] = []
        self.ended = threading.Event()
        self._changed: queue.Queue[None] = queue.Queue()
        threading.Thread(target=self._read, args=(response,), daemon=True).start()

    def _read(self, response: httpx.Response) -> None:
        try:
            for line in response.iter_lines():
                document = json.loads(line)
                self.first = self.first or document
                self.arrivals.append(time.monotonic())
                for key, value in document.get("endpoints", {}).items():
                    if value is None:
                        self.endpoints.pop(key)
                    else:
                        self.endpoints[key] = value
        except httpx.HTTPError:
            pass
        self.ended.set()

    def until(self, name: str, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        key = f"team/{name}"
        wait_for(lambda: key in self.endpoints and condition(self.endpoints[key]), what)
        found: dict[str, Any] = self.endpoints[key]
        return found


@contextmanager
def stream(gateway: Gateway) -> Iterator[Lines]:
    timeout = httpx.Timeout(30)
    with httpx.stream("GET", f"http://127.0.0.1:{gateway.http_port}/demand", timeout=timeout) as response:
        assert response.status_code == 200
        lines = Lines(response)
        wait_for(lambda: lines.first, "the first line")
        yield lines
