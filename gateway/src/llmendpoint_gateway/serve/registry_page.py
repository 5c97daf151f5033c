"""A registry's metrics as Prometheus' text, in pieces: with 5,000 busy replicas the whole takes 50 ms, and requests are
decided in between."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

LINES = 200
"""Of a piece. A collector with more of them yields a family several times, one after the other, with some lines each."""


class _Single(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        yield self._family


async def in_pieces(pieces: Iterable[str]) -> str:
    """All of them. After each one, others have the event loop."""
    found = []
    for piece in pieces:
        found.append(piece)
        await asyncio.sleep(0)
    return "".join(found)


def registry_pieces(registry: Collector) -> Iterator[str]:
    before = ""
    for family in registry.collect():
        for part in _parts(family):
            text = generate_latest(_Single(part)).decode()
            yield _without_heading(text) if part.name == before else text
            before = part.name


def _parts(family: Metric) -> Iterator[Metric]:
    """A family with several names of samples, such as a histogram, stays whole: each name has a heading of its own."""
    if len(family.samples) <= LINES or len({sample.name for sample in family.samples}) > 1:
        yield family
        return
    rest = iter(family.samples)
    while samples := list(islice(rest, LINES)):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = samples
        yield part


def _without_heading(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
