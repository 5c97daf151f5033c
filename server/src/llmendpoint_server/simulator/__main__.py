"""The command `llmendpoint-simulator`. Flags in, exit code out, as in `llmendpoint-server`."""

from __future__ import annotations

import sys
import time
import uuid
from importlib.metadata import version
from pathlib import Path

from starlette.types import ASGIApp

from llmendpoint_server.api.adapters import make_adapters
from llmendpoint_server.api.app import make_app
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.sampling_defaults import SamplingDefaults
from llmendpoint_server.api.server import serve
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.traces import make_traces
from llmendpoint_server.exits import exit_code_of
from llmendpoint_server.settings import Settings
from llmendpoint_server.simulator.behaviour import Behaviour
from llmendpoint_server.simulator.engine import SimulatedEngine
from llmendpoint_server.simulator.foreign import Foreign
from llmendpoint_server.simulator.settings import parse
from llmendpoint_server.simulator.tokens import ByteTokenizer


def run(settings: Settings, behaviour: Behaviour) -> int:
    """Serve until the server stops. Returns the exit code."""

    def make_service() -> Service:
        engine = SimulatedEngine(settings, behaviour)
        name, release, instance = settings.served_names[0], version("llmendpoint-server"), uuid.uuid4().hex
        metrics = Metrics(engine, name, settings.max_loras if settings.enable_lora else 0)
        traces = make_traces(
            settings.otlp_traces_endpoint, settings.trace_sampling, name, release, instance, metrics
        )
        return Service(
            engine, ByteTokenizer(), metrics, settings.served_names, SamplingDefaults(), release, instance, int(time.time()),
            settings.default_deadline_ms, traces, adapters=make_adapters(settings, engine, Path),
        )  # fmt: skip

    def app_of(service: Service) -> ASGIApp:
        app = make_app(service)
        return Foreign(app) if behaviour.foreign else app

    return exit_code_of(lambda: serve(settings, make_service, app_of))


def main() -> None:
    sys.exit(run(*parse(sys.argv[1:])))


if __name__ == "__main__":
    main()
