"""What of an engine the simulator has in words alone: adapters that are names without weights, and vectors that it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from llmendpoint_server.api.interfaces import VectorsOf
from llmendpoint_server.core.pooling.request import PoolingRequest
from llmendpoint_server.core.request import Request
from llmendpoint_server.errors import EngineFailed
from llmendpoint_server.protocol import AdapterChanged
from llmendpoint_server.simulator.behaviour import Behaviour


class WithoutWeights:
    _behaviour: Behaviour
    _loads = 0

    async def load_adapter(self, name: str, folder: str) -> AdapterChanged:
        behaviour = self._behaviour
        await asyncio.sleep(behaviour.adapter_load_time)
        if behaviour.adapter_error is not None and behaviour.adapter_error in folder:
            detail = (
                f"The simulator was told to refuse this adapter (--adapter-error {behaviour.adapter_error})."
            )
            return AdapterChanged(0, "unfit", detail)
        self._loads += 1
        return AdapterChanged(0, generation=self._loads)

    async def unload_adapter(self, name: str) -> AdapterChanged:
        return AdapterChanged(0)

    def submit_inputs(self, request: PoolingRequest) -> VectorsOf:
        """Not reached: the API asks a model that generates for none."""
        raise EngineFailed("The simulator generates text; it makes no vectors.")


def adapters_of(requests: Iterable[Request]) -> tuple[str, ...]:
    """Each once."""
    return tuple(sorted({request.adapter for request in requests} - {""}))
