"""An operator's work inside the test's own process, so that it can be killed after any of its writes: what it then had in
memory is gone, and the answer to its last write with it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp

from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.metrics import Metrics
from llmendpoint_operator.observe.wire import Wire
from llmendpoint_operator.settings import Settings
from llmendpoint_operator.work import make_work

if TYPE_CHECKING:
    from tests.integration.rollout_stage import Stage


class MortalApi(KubeApi):
    """Counts writes to endpoints and their children; dies after one of them is done, before its answer is read."""

    def __init__(self, credentials: Credentials, die_after: int | None) -> None:
        super().__init__(credentials)
        self.writes = 0
        self.dead = asyncio.Event()
        self._die_after = die_after

    async def _open(self, method: str, path: str, *rest: Any) -> aiohttp.ClientResponse:
        response = await super()._open(method, path, *rest)
        if method != "GET" and "/events" not in path:
            self.writes += 1
            if self._die_after is not None and self.writes >= self._die_after:
                self.dead.set()
        if self.dead.is_set():
            response.close()
            await asyncio.Event().wait()
        return response


class Operator:
    """One life of an operator's leader. `settings` are those that a test needs to differ."""

    def __init__(self, stage: Stage, die_after: int | None = None, **settings: Any) -> None:
        self._stage = stage
        self._settings = settings
        self._stack = contextlib.AsyncExitStack()
        self.api = MortalApi(stage.credentials, die_after)
        self.metrics = Metrics()

    async def start(self) -> Operator:
        """As the process does once it holds the lease."""
        metrics, stage = self.metrics, self._stage
        settings = Settings(
            watch_namespace=stage.namespace,
            gateway_namespace=stage.namespace,
            gateway_state_port=stage.gateway_port,
            **self._settings,
        )
        stage.operators.append(self)
        await self._stack.enter_async_context(self.api)
        wire = await self._stack.enter_async_context(Wire(metrics))
        work = make_work(self.api, wire, metrics, settings, stage.namespace)
        await self._stack.enter_async_context(work.running(self._ended))
        return self

    async def stop(self) -> None:
        """Everything of it ends at once."""
        await self._stack.aclose()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._stage.failures.append(f"{task.get_name()}: {task.exception()!r}")
