"""One request in the simulated engine, as its queue sees it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from llmendpoint_server.api.engine_stream import EngineStream
from llmendpoint_server.core.queue import Order, order_of
from llmendpoint_server.core.request import Request


@dataclass(eq=False)
class Sequence:
    number: int
    request: Request
    stream: EngineStream
    generated: int = 0
    task: asyncio.Task[None] | None = None
    began: float = 0.0

    @property
    def order(self) -> Order:
        return order_of(self.request, self.number)

    @property
    def begun(self) -> bool:
        return self.task is not None

    @property
    def ready(self) -> bool:
        return True

    @property
    def due(self) -> int:
        return len(self.request.prompt) + self.generated
