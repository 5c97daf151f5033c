"""How the clients of `make bench-prefixes` choose an engine."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

Choose = Callable[[], contextlib.AbstractAsyncContextManager[tuple[int, str]]]
"""The port and the model's name of one request, while it lasts."""


def in_turn(ports: Sequence[int]) -> Choose:
    turns = itertools.cycle(ports)

    @contextlib.asynccontextmanager
    async def choose() -> AsyncIterator[tuple[int, str]]:
        yield next(turns), "bench"

    return choose


def by_fewest(ports: Sequence[int]) -> Choose:
    running, turns = Counter[int](), itertools.count()

    @contextlib.asynccontextmanager
    async def choose() -> AsyncIterator[tuple[int, str]]:
        start = next(turns) % len(ports)
        port = min((*ports[start:], *ports[:start]), key=lambda p: running[p])
        running[port] += 1
        try:
            yield port, "bench"
        finally:
            running[port] -= 1

    return choose


def always(port: int, model: str) -> Choose:
    @contextlib.asynccontextmanager
    async def choose() -> AsyncIterator[tuple[int, str]]:
        yield port, model

    return choose
