"""Loads as rich shows them. What is unknown is a `?`, never a 0."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from .core.load import EndpointLoad, ReplicaLoad

COLOURS = {"closed": "green", "half-open": "yellow", "open": "red"}


def load_table(loads: Iterable[EndpointLoad]) -> Table:
    """A line for each endpoint, and under it one for each replica."""
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("ENDPOINT", no_wrap=True)
    for column in ("READY", "WAITING", "IN FLIGHT", "RUNNING", "QUEUED", "KV CACHE"):
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column("BREAKER", no_wrap=True)
    for load in loads:
        breaker = load.breaker or "?"
        table.add_row(
            Text(load.endpoint, style="bold"), f"{load.ready}/{load.wanted}", _known(load.waiting), _known(load.in_flight),
            "", "", "", Text(breaker, style=COLOURS.get(breaker, "yellow")),
        )  # fmt: skip
        for replica in load.replicas:
            table.add_row(*_replica(replica))
    return table


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


def _replica(load: ReplicaLoad) -> tuple[Text | str, ...]:
    most = f"/{load.max_num_seqs}" if load.max_num_seqs is not None else ""
    running = "?" if load.running is None else f"{load.running}{most}"
    cache = "?" if load.kv_usage is None else f"{load.kv_usage:.0%}"
    return Text(f"  {load.pod}"), "", "", str(load.in_flight), running, _known(load.queued), cache, ""
