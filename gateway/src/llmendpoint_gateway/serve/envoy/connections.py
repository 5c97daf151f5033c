"""Tells Envoy which share of its connections is open, by a file that Envoy watches.

Envoy counts its connections and closes those above the limit, but has no action that begins earlier. The idle timeout
of a connection follows from this file (core/envoy/overload.py). While the picker is away, the last value holds.
"""

import asyncio
from pathlib import Path

from llmendpoint_gateway.core.envoy.bounds import CONNECTIONS_LOOK_SECONDS
from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.envoy.envoy_stats import EnvoyStats
from llmendpoint_gateway.serve.envoy.process import write_share


async def follow_connections(envoy: EnvoyStats, file: Path) -> None:
    told: float | None = None
    most = 1.0
    while True:
        await asyncio.sleep(CONNECTIONS_LOOK_SECONDS)
        try:
            if told is None:
                most = await envoy.most_connections()
            share = round(await envoy.connections() / most, 2)
            if share != told:
                write_share(file, share)
                told = share
        except (EnvoyAway, OSError):
            told = None  # the next Envoy begins without connections
