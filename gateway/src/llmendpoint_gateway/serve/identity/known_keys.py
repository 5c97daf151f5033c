"""The LLMKeys as the API server last told them: the table, and whether it was ever read whole."""

import asyncio
import gc
from collections.abc import Set

import structlog

from llmendpoint_gateway.core.endpoint.reach import Reach
from llmendpoint_gateway.core.identity.key_objects import Key
from llmendpoint_gateway.core.identity.keys import MOST_KEYS, Keys

SWEPT = 5000
"""Names that are compared in one turn of the loop: 1 ms."""
log = structlog.get_logger()


class KnownKeys:
    """`synced`: a full list was read since this picker started. `reach`: whether the watch works; it is one of its own, because requests
    go where the endpoints say also while keys cannot be read. `problem`: why the watch failed last."""

    def __init__(self) -> None:
        self.table = Keys()
        self.reach = Reach()
        self.synced = False
        self.problem = ""
        self._told_full = False

    def put(self, key: Key) -> None:
        if self.table.put(key):
            self._told_full = self._told_full and self.table.left_out > 0
        elif not self._told_full:
            self._told_full = True
            log.error(
                "too many LLMKeys, of this namespace or in all: the ones that come now let nobody in",
                most=MOST_KEYS,
                key=key.key,
            )

    def drop(self, name: str) -> None:
        self.table.drop(name)

    async def listed(self, names: Set[str]) -> None:
        """A full list was read, and all of it was `put`: LLMKeys that it lacks are gone. Requests go on meanwhile."""
        known = self.table.names
        for start in range(0, len(known), SWEPT):
            for name in known[start : start + SWEPT]:
                if name not in names:
                    self.table.drop(name)
            await asyncio.sleep(0)
        if not self.synced:
            self.synced = True
            gc.freeze()  # they live long, and a collection that scanned 100,000 of them would take 0.3 s
