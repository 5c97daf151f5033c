"""docs/concepts/adapters.md: adapters come and go in real simulators on a real API server, and no pod is restarted.

The simulators run with the arguments that the operator wrote into the pods.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from llmendpoint_operator.kube.resources import EVENTS, PODS
from tests.cluster import Cluster
from tests.integration.fake_wire import FakeEngine
from tests.integration.installed import ROOT
from tests.integration.mortal_operator import Operator
from tests.integration.rollout_players import Json
from tests.integration.rollout_stage import RUNTIME, Stage, Stages

pytestmark = pytest.mark.integration

SQL = {"name": "sql", "source": "hf://acme/sql"}
LEGAL = {"name": "legal", "source": "s3://acme/legal"}
BROKEN = {"name": "odd", "source": "hf://acme/broken"}
AT_ONCE = {"observe": {"duration": 0}}
ARGS = ["--adapter-error=broken", "--load-time=0"]


@dataclass
class Simulated(Stage):
    """Each pod's engine is a simulator."""

    traffic: bool = False
    simulators: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start_engine(self, pod: Json) -> tuple[FakeEngine, str]:
        address = f"127.1.{len(self.simulators) // 250}.{len(self.simulators) % 250 + 2}"
        arguments = [
            f"--host={address}" if word.startswith("--host=") else word
            for word in pod["spec"]["containers"][0]["args"]
        ]
        command = (sys.executable, "-m", "llmendpoint_server.simulator", *arguments)
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
        self.simulators.append(process)
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while not await _is_ready(session, f"http://{address}:{self.engine_port}/ready"):
                assert process.returncode is None, arguments
                await asyncio.sleep(0.1)
        return FakeEngine(), address

    async def close(self) -> None:
        await super().close()
        for process in self.simulators:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def want(self, *adapters: dict[str, str], **fields: Any) -> None:
        """An edit of the adapters alone."""
        await self.edit(
            1,
            replicas=2,
            rollout=AT_ONCE,
            runtime={"name": RUNTIME, "args": ARGS},
            adapters=list(adapters),
            **fields,
        )

    async def said(self, reason: str) -> None:
        await self.until(
            f"AdaptersReady to be {reason}",
            lambda: (
                self.condition("AdaptersReady").get("reason") == reason
                and self.condition("AdaptersReady")["observedGeneration"]
                == self.endpoint["metadata"]["generation"]
            ),
        )

    async def held(self) -> list[list[str]]:
        """What each pod's /load lists."""
        found = []
        async with aiohttp.ClientSession() as session:
            for pod in await self.pods():
                url = f"http://{pod['status']['podIP']}:{self.engine_port}/load"
                async with session.get(url) as response:
                    found.append((await response.json())["adapters"])
        return found

    async def pods(self) -> list[Json]:
        found = (await self.api.list(PODS, self.namespace, "llmendpoint.io/endpoint"))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def uids(self) -> set[str]:
        return {str(pod["metadata"]["uid"]) for pod in await self.pods()}


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


def install_simulator(cluster: Cluster, engine_port: int) -> None:
    """The chart's own runtime of the simulator, with the test's port."""
    runtime = yaml.safe_load((Path(ROOT) / "charts/llmendpoint/runtimes/simulator.yaml").read_text())
    runtime["metadata"]["name"] = RUNTIME
    runtime["spec"] |= {"image": "localhost/engine:1", "ports": {"http": engine_port}}
    cluster.apply(runtime)


async def test_adapters_come_and_go_in_running_pods(stages: Stages) -> None:
    install_simulator(stages.cluster, stages.engine_port)
    async with stages.stage(kind=Simulated) as stage:
        assert isinstance(stage, Simulated)
        await Operator(stage).start()
        await stage.want()
        without = await stage.at_rest()
        assert stage.condition("AdaptersReady") == {}

        await stage.want(SQL)
        first = await stage.at_rest()
        assert first != without, "an engine is started for adapters"
        await stage.said("AllLoaded")
        assert await stage.held() == [["sql"]] * 2
        pods = await stage.uids()

        await stage.want(SQL, LEGAL, BROKEN)
        await stage.said("LoadFailed")
        await stage.until(
            "legal on both",
            lambda: {e["name"]: e["readyReplicas"] for e in stage.status["adapters"]}["legal"] == 2,
        )
        assert await stage.held() == [["legal", "sql"]] * 2
        [odd] = [entry for entry in stage.status["adapters"] if entry["name"] == "odd"]
        assert "told to refuse" in odd["message"]
        assert stage.condition("Ready")["status"] == "True"
        assert stage.condition("Degraded")["status"] == "False"

        await stage.want({**SQL, "source": "hf://acme/sql@v2"})
        await stage.said("AllLoaded")
        assert await stage.held() == [["sql"]] * 2
        assert [e["source"] for e in stage.status["adapters"]] == ["hf://acme/sql@v2"]

        await stage.want()
        await stage.until("no adapter in the status", lambda: "adapters" not in stage.status)
        async with asyncio.timeout(30):
            while await stage.held() != [[]] * 2:  # noqa: ASYNC110  # they are processes of their own
                await asyncio.sleep(0.1)
        assert stage.active == first
        assert await stage.uids() == pods, "no pod was restarted"
        reasons = {event["reason"] for event in (await stage.api.list(EVENTS, stage.namespace))["items"]}
        assert {"AdaptersLoaded", "AdapterFailed"} <= reasons
