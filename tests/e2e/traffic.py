"""Steady traffic through the gateway: so many requests a second, a third of them streams, each remembered."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.cluster import wait_for
from tests.e2e.product import Product

PATIENCE_S = 60.0
STREAM_EVERY = 3


@dataclass(frozen=True)
class Sent:
    """One request: when it was sent and had its answer (seconds, monotonic), and the answer's text or why there is none."""

    at: float
    text: str = ""
    failure: str | None = None
    ended: float = field(default_factory=time.monotonic)


class Traffic:
    """What was sent so far. `done` grows as answers end."""

    def __init__(self, url: str, model: str, per_second: float) -> None:
        self.done: list[Sent] = []
        self._url, self._model, self._interval = f"{url}/v1/chat/completions", model, 1 / per_second
        self._stop = threading.Event()

    @property
    def failures(self) -> list[Sent]:
        return [sent for sent in self.done if sent.failure is not None]

    def texts(self, since: float = 0.0) -> Counter[str]:
        """How often each answer came, among the requests that were sent at `since` or later."""
        return Counter(sent.text for sent in list(self.done) if sent.at >= since and sent.failure is None)

    def wait_for_more(self, count: int) -> None:
        """Until `count` further requests have ended."""
        goal = len(self.done) + count
        wait_for(f"{count} more requests", lambda: len(self.done) >= goal, 240)

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as group,
        ):
            number, next_at = 0, time.monotonic()
            while not self._stop.is_set():
                number += 1
                group.create_task(self._one(session, number % STREAM_EVERY == 0))
                next_at += self._interval
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def _one(self, session: aiohttp.ClientSession, stream: bool) -> None:
        at = time.monotonic()
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": "Who are you?"}],
            "stream": stream,
        }
        try:
            async with session.post(self._url, json=body) as response:
                content = await response.read()
                if response.status != 200:
                    self.done.append(Sent(at, failure=f"{response.status}: {content[:200]!r}"))
                    return
            self.done.append(Sent(at, _streamed(content) if stream else _whole(content)))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self.done.append(Sent(at, failure=f"{type(error).__name__}: {error}"))


def _whole(content: bytes) -> str:
    return json.loads(content)["choices"][0]["message"]["content"]


def _streamed(content: bytes) -> str:
    """The text of a stream that ended as it should; ValueError otherwise."""
    events = [line[6:] for line in content.split(b"\n") if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise ValueError(f"a stream was cut after {len(events)} events")
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@contextmanager
def flowing(product: Product, model: str, per_second: float = 50) -> Iterator[Traffic]:
    """Traffic to `model` while the block runs; when it is left, every request has ended."""
    traffic = Traffic(product.url, model, per_second)
    thread = threading.Thread(target=lambda: asyncio.run(traffic._run()), daemon=True)
    thread.start()
    try:
        traffic.wait_for_more(10)
        yield traffic
    finally:
        traffic._stop.set()
        thread.join(2 * PATIENCE_S)
        assert not thread.is_alive(), "some requests hang"
