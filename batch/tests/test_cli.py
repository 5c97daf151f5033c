"""docs/concepts/batches.md: `kubectl llm batch` submits, waits and shows results, against the real service."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from batch.tests.inputs import lines
from batch.tests.running import service
from batch.tests.upstream import serve_upstream

SERVICES = {"items": [{"metadata": {"name": "llmendpoint-batch", "namespace": "llm"}}]}


@asynccontextmanager
async def api_server(target: str) -> AsyncIterator[str]:
    async def proxy(request: web.Request) -> web.Response:
        url = f"{target}/{request.match_info['path']}"
        headers = {"Content-Type": request.headers.get("Content-Type", "")}
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url, data=await request.read(), headers=headers) as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read())

    async def listed(_request: web.Request) -> web.Response:
        return web.json_response(SERVICES)

    app = web.Application(client_max_size=1 << 30)
    place = "/api/v1/namespaces/llm/services/llmendpoint-batch:http/proxy/{path:.*}"
    app.add_routes([web.get("/api/v1/services", listed), web.route("*", place, proxy)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def kubectl_llm(config: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llmendpoint_cli", "batch", *arguments, "--kubeconfig", str(config),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_submit_status_and_results(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(lines(["one", "two", "bad"]))
    config = tmp_path / "config"
    async with (
        serve_upstream() as upstream,
        service(tmp_path / "data", upstream.url) as process,
        api_server(process.url) as url,
    ):
        cluster, context = {"name": "c", "cluster": {"server": url}}, {"cluster": "c", "user": "u"}
        contexts, users = [{"name": "one", "context": context}], [{"name": "u", "user": {}}]
        whole = {"current-context": "one", "contexts": contexts, "clusters": [cluster], "users": users}
        config.write_text(json.dumps(whole))
        made = json.loads(await kubectl_llm(config, "submit", str(tmp_path / "in.jsonl"), "-o", "json"))
        told = await kubectl_llm(config, "status", made["id"], "--wait", "--timeout", "20")
        assert "completed, 3 of 3 lines answered, 1 of them failed" in told
        rows = [json.loads(row) for row in (await kubectl_llm(config, "results", made["id"])).splitlines()]
        assert [row["custom_id"] for row in rows] == ["one", "two"]
        assert "invalid_value" in await kubectl_llm(config, "results", made["id"], "--errors")
