"""The picker's configuring half in this process, with a real Envoy that is configured by it."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.tests.bounds import PATIENCE
from gateway.tests.gateway_process import GatewayProcess
from gateway.tests.one_endpoint import parts_of
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.parts import Parts
from llmendpoint_gateway.server import serve_grpc


class EnvoyAlone(GatewayProcess):
    """A real Envoy; its picker is this process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder)

    def start_picker(self) -> None:
        pass


@contextlib.asynccontextmanager
async def envoy_alone() -> AsyncIterator[EnvoyAlone]:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        envoy = EnvoyAlone(Path(folder))
        try:
            yield envoy
        finally:
            envoy.close()


@contextlib.asynccontextmanager
async def picker(envoy: EnvoyAlone) -> AsyncIterator[Parts]:
    ads = Ads()
    parts = parts_of(ads)
    envoy.socket.unlink(missing_ok=True)
    server = await serve_grpc(envoy.socket, ads, parts.outcomes)
    following = asyncio.create_task(parts.control.run())
    try:
        yield parts
    finally:
        following.cancel()
        await server.stop(None)


async def settled(parts: Parts, seconds: float = PATIENCE) -> None:
    """Envoy has acknowledged all, and the table follows it."""
    for _ in range(int(seconds / 0.02)):
        if parts.control.started and parts.ads.acknowledged_generation == parts.control.generation:
            return await asyncio.sleep(0.02)
        await asyncio.sleep(0.02)
    raise TimeoutError(f"Envoy has not acknowledged generation {parts.control.generation}")
