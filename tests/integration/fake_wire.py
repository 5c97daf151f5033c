"""Engines and gateways as the operator sees them: real HTTP servers on loopback addresses, played by a test.

They run on the test's own event loop."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

ENGINE_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_hosts = itertools.count(2)


class Servers:
    """As context manager it ends all of them."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def __aenter__(self) -> Servers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))

    async def add(self, app: web.Application, port: int) -> str:
        """Serve an application on a loopback address of its own; the address."""
        number = next(_hosts)
        address = f"127.0.{number // 250}.{number % 250 + 2}"
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, port).start()
        self._runners.append(runner)
        return address


Reply = tuple[int, str]


@dataclass
class FakeEngine:
    """One pod's engine. `answer` gives status and text for a prompt; a status of 0 never answers."""

    answer: Callable[[str], Reply] = lambda _: (200, "Paris")
    asked: list[dict[str, Any]] = field(default_factory=list)
    scrapes: int = 0
    load: dict[str, Any] | None = None
    """What `/load` says; None: it has none."""
    redirects_to: str | None = None
    """Base URL that every question for its models is redirected to."""
    listed: int = 0
    """Questions for its models."""
    headers: list[Mapping[str, str]] = field(default_factory=list)
    mute: bool = False
    """Never answers `/metrics`."""
    _buckets: dict[str, list[float]] = field(default_factory=dict)

    async def serve(self, servers: Servers, port: int) -> str:
        """Start it; its address."""
        app = web.Application()
        app.add_routes([
            web.post("/v1/chat/completions", self._complete), web.get("/metrics", self._metrics),
            web.get("/v1/models", self._models), web.get("/load", self._load),
        ])  # fmt: skip
        return await servers.add(app, port)

    def observe(self, seconds: float, count: int = 1, name: str = "time_to_first_token_seconds") -> None:
        """So many observations of one histogram."""
        found = self._buckets.setdefault(name, [0.0] * (len(ENGINE_BUCKETS) + 1))
        found[sum(bound < seconds for bound in ENGINE_BUCKETS)] += count

    def restart(self) -> None:
        """Its process begins anew."""
        self._buckets.clear()

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(request.headers)
        status, text = self.answer(body["messages"][-1]["content"])
        if status == 0:
            await asyncio.sleep(3600)
        if status != 200:
            return web.json_response({"error": {"message": text}}, status=status)
        message = {"role": "assistant", "content": text}
        return web.json_response({"choices": [{"index": 0, "message": message}]})

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response(self.load) if self.load is not None else web.Response(status=404)

    async def _models(self, request: web.Request) -> web.Response:
        self.listed += 1
        self.headers.append(request.headers)
        if self.redirects_to is not None:
            raise web.HTTPTemporaryRedirect(self.redirects_to + request.path)
        return web.json_response({"data": [{"id": "the-judge"}]})

    async def _metrics(self, _: web.Request) -> web.Response:
        self.scrapes += 1
        while self.mute:  # noqa: ASYNC110  # a test sets it
            await asyncio.sleep(0.05)
        lines = []
        for name, counts in self._buckets.items():
            lines.append(f"# TYPE vllm:{name} histogram")
            bounds = [*map(str, ENGINE_BUCKETS), "+Inf"]
            for bound, total in zip(bounds, itertools.accumulate(counts), strict=True):
                lines.append(f'vllm:{name}_bucket{{le="{bound}",model_name="m"}} {total}')
            lines.append(f'vllm:{name}_sum{{model_name="m"}} 1.0')
            lines.append(f'vllm:{name}_count{{model_name="m"}} {sum(counts)}')
        return web.Response(text="\n".join(lines) + "\n")


@dataclass
class FakeGateway:
    """One gateway's picker port. A hanging one accepts connections and never answers; a silent one does not know
    `/revisions`."""

    hanging: bool = False
    silent: bool = False
    instance: str = "1"
    epochs: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    replicas: dict[tuple[str, str], dict[str, list[int]]] = field(default_factory=dict)
    """By endpoint and revision, those of each pod."""
    in_flight: dict[str, int] = field(default_factory=dict)
    states: int = 0
    told: list[dict[str, int]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    """The Authorization of each `/state`, `/demand` and `/epoch`."""
    distrustful: bool = False
    """Refuses `/epoch`."""
    page: str | None = None
    """In place of `/state`."""
    demand: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What `/demand` tells, by endpoint."""
    mute: bool = False
    """Refuses `/demand`."""
    _listeners: set[asyncio.Queue[dict[str, Any] | None]] = field(default_factory=set)

    async def serve(self, servers: Servers, port: int) -> str:
        """Start it; its address."""
        app = web.Application()
        app.add_routes([
            web.get("/state", self._state), web.get("/revisions/{namespace}/{name}", self._revisions),
            web.post("/epoch", self._epoch), web.get("/demand", self._demand),
        ])  # fmt: skip
        return await servers.add(app, port)

    def tell(self, endpoint: str, waiting: int = 0, **replicas: dict[str, Any]) -> None:
        """The load and demand of an endpoint from now on; replicas by pod as in docs/contribute/contracts.md."""
        self.tell_of(endpoint, {"waiting": waiting, "in_flight": 0, "replicas": replicas})

    def tell_of(self, endpoint: str, told: dict[str, Any]) -> None:
        """The same, as a whole."""
        self.demand[endpoint] = told
        for listener in self._listeners:
            listener.put_nowait({"endpoints": {endpoint: told}})

    def hush(self) -> None:
        """Every stream ends, and none is opened any more."""
        self.mute = True
        for listener in self._listeners:
            listener.put_nowait(None)

    def count(self, endpoint: str, revision: str, requests: int, errors: int = 0, pod: str = "") -> None:
        """So many requests have ended, at one replica if `pod` says so."""
        total = self.counts.setdefault(endpoint, {}).setdefault(revision, [0, 0])
        of_pod = self.replicas.setdefault((endpoint, revision), {}).setdefault(pod, [0, 0])
        for found in (total, of_pod):
            found[0] += requests
            found[1] += errors

    async def _hang(self) -> None:
        while self.hanging:  # noqa: ASYNC110  # a test sets it from another thread
            await asyncio.sleep(0.05)

    async def _state(self, request: web.Request) -> web.Response:
        self.states += 1
        self.tokens.append(request.headers.get("Authorization"))
        await self._hang()
        if self.page is not None:
            return web.Response(text=self.page)
        replicas = [{"pod": pod, "in_flight": count} for pod, count in self.in_flight.items()]
        endpoints = {name: {"epoch": epoch, "replicas": replicas} for name, epoch in self.epochs.items()}
        return web.json_response({"generation": 1, "endpoints": endpoints})

    async def _revisions(self, request: web.Request) -> web.Response:
        await self._hang()
        if self.silent:
            return web.Response(status=404)
        name = f"{request.match_info['namespace']}/{request.match_info['name']}"
        found: dict[str, dict[str, Any]] = {
            revision: _counted(counts) for revision, counts in self.counts.get(name, {}).items()
        }
        for revision, told in found.items():
            pods = {pod: counts for pod, counts in self.replicas.get((name, revision), {}).items() if pod}
            if pods:
                told["replicas"] = {pod: _counted(counts) for pod, counts in pods.items()}
        return web.json_response({"instance": self.instance, "picker": self.instance, "revisions": found})

    async def _demand(self, request: web.Request) -> web.StreamResponse:
        if self.mute:
            return web.Response(status=503)
        self.tokens.append(request.headers.get("Authorization"))
        response = web.StreamResponse()
        await response.prepare(request)
        listener: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._listeners.add(listener)
        try:
            line: dict[str, Any] | None = {"instance": self.instance, "endpoints": self.demand}
            while line is not None:
                await response.write(json.dumps(line).encode() + b"\n")
                try:
                    line = await asyncio.wait_for(listener.get(), 0.5)
                except TimeoutError:
                    line = {}
        finally:
            self._listeners.discard(listener)
        return response

    async def _epoch(self, request: web.Request) -> web.Response:
        await self._hang()
        self.tokens.append(request.headers.get("Authorization"))
        if self.distrustful:
            return web.json_response({"error": "this is not a token of the operator"}, status=403)
        self.told.append(json.loads(await request.text()))
        return web.Response()


def _counted(counts: list[int]) -> dict[str, int]:
    return dict(zip(("requests", "errors"), counts, strict=True))
