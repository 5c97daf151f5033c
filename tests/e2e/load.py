"""Clients that stream chat completions for as long as a test changes things under them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from openai import OpenAI

from tests.cluster import wait_for
from tests.e2e.product import Product

QUESTION = "What is continuous batching?"
_PAUSE_S = 0.1  # leaves the cores to the pods that start meanwhile


class Streams:
    """Counts of a load; a request that did not end with a finish reason is a failure."""

    def __init__(self, product: Product, model: str) -> None:
        self.completed = 0
        self.failures: list[str] = []
        self._product, self._model = product, model
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def wait_for_more(self, count: int) -> None:
        """Until `count` further requests have ended, well or not."""
        goal = self.completed + len(self.failures) + count
        wait_for(f"{count} more requests", lambda: self.completed + len(self.failures) >= goal, 120)

    def _run(self) -> None:
        client = self._product.openai()
        while not self._stop.is_set():
            failure = self._one(client)
            with self._lock:
                if failure is None:
                    self.completed += 1
                else:
                    self.failures.append(failure)
            self._stop.wait(_PAUSE_S)

    def _one(self, client: OpenAI) -> str | None:
        try:
            stream = client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": QUESTION}],
                temperature=0,
                max_tokens=32,
                stream=True,
            )
            reasons = [chunk.choices[0].finish_reason for chunk in stream if chunk.choices]
        except Exception as error:  # every kind of failure is what this counts
            return f"{type(error).__name__}: {error}"
        return (
            None
            if reasons and reasons[-1]
            else f"the stream ended without a finish reason after {len(reasons)} chunks"
        )


@contextmanager
def streaming(product: Product, model: str, clients: int = 8) -> Iterator[Streams]:
    """`clients` clients that stream one answer after the other; all have ended when the block is left."""
    streams = Streams(product, model)
    threads = [threading.Thread(target=streams._run, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        streams.wait_for_more(clients)
        yield streams
    finally:
        streams._stop.set()
        for thread in threads:
            thread.join(120)
