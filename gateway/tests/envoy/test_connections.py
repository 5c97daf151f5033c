"""docs/concepts/gateway.md: the picker tells Envoy by a file how many connections are open; without inotify it is 620 s."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from gateway.tests.asking import until
from llmendpoint_gateway.core.envoy.bounds import CONNECTIONS_LOOK_SECONDS, Share
from llmendpoint_gateway.core.envoy.overload import make_overload_manager
from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.envoy.connections import follow_connections
from llmendpoint_gateway.serve.envoy.envoy_stats import OPEN, EnvoyStats

NO_FILES_LEFT = """
import os, resource
from llmendpoint_gateway.serve.envoy.open_files import can_watch_files
assert can_watch_files()
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1,) * 2)
print(can_watch_files())
"""


class Admin:
    """Envoy's admin interface, and how often each page was asked for."""

    def __init__(self, socket: Path, most: int) -> None:
        self.socket, self.most = socket, most
        self.open = 0
        self.asked = {"/stats": 0, "/server_info": 0}

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.get("/stats", self._stats), web.get("/server_info", self._info)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.UnixSite(runner, str(self.socket)).start()
        return runner

    async def _stats(self, request: web.Request) -> web.Response:
        self.asked[request.path] += 1
        return web.json_response({"stats": [{"name": OPEN, "value": self.open}]})

    async def _info(self, request: web.Request) -> web.Response:
        self.asked[request.path] += 1
        return web.json_response({"node": {"metadata": {"connections": self.most}}})


async def test_the_picker_asks_an_envoy_once_how_many_connections_it_may_have(tmp_path: Path) -> None:
    """The page has 120 kB. It was read at each look."""
    socket, file = tmp_path / "admin", tmp_path / "share"
    first = Admin(socket, most=10)
    runner = await first.start()
    async with EnvoyStats(socket) as envoy:
        task = asyncio.create_task(follow_connections(envoy, file))
        for first.open in (3, 5, 8):
            await until(lambda: file.exists() and file.read_text() == f"{first.open / 10}", "it is told")
        assert first.asked["/server_info"] == 1 < first.asked["/stats"]
        await runner.cleanup()
        with pytest.raises(EnvoyAway):
            await envoy.connections()
        await asyncio.sleep(2 * CONNECTIONS_LOOK_SECONDS)  # it has looked, and found none
        second = Admin(socket, most=20)
        second.open = 8
        runner = await second.start()
        await until(lambda: file.read_text() == "0.4", "the new one's limit counts")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await runner.cleanup()


def test_where_no_file_can_be_watched_envoy_is_told_to_watch_none() -> None:
    """Envoy aborted at its start: assert failure, inotify_fd_ >= 0."""
    told = subprocess.run([sys.executable, "-c", NO_FILES_LEFT], capture_output=True, text=True, check=True)
    assert told.stdout.split()[-1] == "False"
    assert "injected_resource" in str(make_overload_manager(Share(), "/run/gateway/envoy-connections"))
    without = make_overload_manager(Share(), None)
    assert "injected_resource" not in str(without)
    assert {action["name"] for action in without["actions"]} >= {"envoy.overload_actions.reduce_timeouts"}
