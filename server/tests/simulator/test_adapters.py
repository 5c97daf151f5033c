"""docs/concepts/adapters.md, as far as it holds without weights: names, listings and changes of adapters, by the simulator."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from server.tests.api.over_http import ASK, error_of
from server.tests.server_process import ServerProcess

SIMULATOR = "llmendpoint_server.simulator"
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
SQL = {"lora_name": "sql", "lora_path": "hf://team/sql@main"}


def simulator(*flags: str) -> ServerProcess:
    return ServerProcess(
        "--load-time", "0", "--ttft", "0", "--itl", "0", "--served-model-name", "chat", *flags, model="any", module=SIMULATOR
    )  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = "--enable-lora", "--max-loras", "2", "--adapter-error", "broken"
    with simulator(*flags, "--lora-modules", "start=file:///adapters/start") as server:
        yield server.wait_ready()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    """With the adapter of the command line alone."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
        for name in client.get("/load").json()["adapters"]:
            client.post(UNLOAD, json={"lora_name": name})
        client.post(LOAD, json={"lora_name": "start", "lora_path": "file:///adapters/start"})


def test_an_adapter_is_a_model_from_its_load_until_it_is_let_go(client: httpx.Client) -> None:
    assert client.post("/v1/chat/completions", json=ASK | {"model": "sql"}).status_code == 404
    loaded = client.post(LOAD, json=SQL)
    assert loaded.status_code == 200
    assert loaded.json()["id"] == "sql"
    assert client.get("/load").json()["adapters"] == ["sql", "start"]
    for name in ("sql", "chat:sql"):
        answer = client.post("/v1/chat/completions", json=ASK | {"model": name})
        assert answer.status_code == 200
        assert answer.json()["model"] == "sql"
    assert client.post("/v1/chat/completions", json=ASK).json()["model"] == "chat"
    assert client.post(UNLOAD, json={"lora_name": "sql"}).status_code == 200
    refused = client.post("/v1/chat/completions", json=ASK | {"model": "chat:sql"})
    assert refused.status_code == 404
    assert error_of(refused)["code"] == "model_not_found"
    assert error_of(refused)["param"] == "model"
    assert client.get("/load").json()["adapters"] == ["start"]


def test_models_lists_adapters_with_their_source_and_their_model(client: httpx.Client) -> None:
    client.post(LOAD, json=SQL)
    listed = {one["id"]: one for one in client.get("/v1/models").json()["data"]}
    assert list(listed) == ["chat", "sql", "start"]
    assert (listed["sql"]["root"], listed["sql"]["parent"]) == ("hf://team/sql@main", "chat")
    assert client.get("/v1/models/sql").json() == listed["sql"]
    assert client.get("/v1/models/chat:sql").json() == listed["sql"]
    assert client.get("/v1/models/other").status_code == 404


def test_the_same_load_again_changes_nothing_and_another_source_replaces_it(client: httpx.Client) -> None:
    client.post(LOAD, json=SQL)
    again = client.post(LOAD, json=SQL)
    assert again.status_code == 200
    replaced = client.post(LOAD, json=SQL | {"lora_path": "hf://team/sql@v2"})
    assert replaced.status_code == 200
    assert client.get("/v1/models/sql").json()["root"] == "hf://team/sql@v2"
    assert client.get("/load").json()["adapters"] == ["sql", "start"]


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "code"),
    [
        (LOAD, {"lora_name": "a/b", "lora_path": "x"}, 400, "lora_name", None),
        (LOAD, {"lora_name": "", "lora_path": "x"}, 400, "lora_name", None),
        (LOAD, {"lora_name": "a" * 129, "lora_path": "x"}, 400, "lora_name", None),
        (LOAD, {"lora_name": "chat", "lora_path": "x"}, 400, "lora_name", None),
        (LOAD, {"lora_name": "sql"}, 400, "lora_path", None),
        (LOAD, {"lora_name": "sql", "lora_path": ""}, 400, "lora_path", None),
        (LOAD, {"lora_name": "sql", "lora_path": "x" * 1025}, 400, "lora_path", None),
        (LOAD, {"lora_name": "sql", "lora_path": 3}, 400, "lora_path", None),
        (LOAD, {"lora_name": "sql", "lora_path": "x", "rank": 1}, 400, "rank", None),
        (LOAD, {"lora_name": "sql", "lora_path": "file:///broken"}, 400, "lora_path", "adapter_unfit"),
        (UNLOAD, {"lora_name": "sql"}, 404, "lora_name", "adapter_not_found"),
        (UNLOAD, {}, 400, "lora_name", None),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_the_field_at_fault(
    client: httpx.Client, path: str, body: dict[str, object], status: int, param: str, code: str | None
) -> None:
    refused = client.post(path, json=body)
    assert refused.status_code == status
    assert (error_of(refused)["param"], error_of(refused)["code"]) == (param, code)
    assert client.get("/load").json()["adapters"] == ["start"]


def test_one_adapter_more_than_max_loras_is_a_conflict(client: httpx.Client) -> None:
    client.post(LOAD, json=SQL)
    refused = client.post(LOAD, json={"lora_name": "third", "lora_path": "x"})
    assert refused.status_code == 409
    assert error_of(refused)["code"] == "adapters_full"
    assert "--max-loras" in error_of(refused)["message"]
    assert client.post(LOAD, json=SQL | {"lora_path": "y"}).status_code == 200  # in the place of the old one


def test_a_server_without_the_flag_has_no_adapters() -> None:
    with simulator() as server:
        server.wait_ready()
        refused = httpx.post(server.url + LOAD, json=SQL)
        assert refused.status_code == 400
        assert "--enable-lora" in error_of(refused)["message"]
        assert httpx.get(server.url + "/load").json()["adapters"] == []
        assert "vllm:lora_requests_info" not in httpx.get(server.url + "/metrics").text


def test_the_metric_names_the_adapters_that_run_and_wait() -> None:
    flags = "--enable-lora", "--max-num-seqs", "1", "--lora-modules", "one=x", "two=y"
    with simulator("--itl", "0.05", *flags) as server:
        server.wait_ready()

        def ask(name: str) -> None:
            httpx.post(server.url + "/v1/completions", json={"model": name, "prompt": "x" * 400}, timeout=30)

        def labels() -> str:
            page = httpx.get(server.url + "/metrics").text.splitlines()
            return next(line for line in page if line.startswith("vllm:lora_requests_info{"))

        assert 'max_lora="8"' in labels()
        callers = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two")]
        callers[0].start()
        server.wait_for("one runs", lambda: 'running_lora_adapters="one"' in labels())
        callers[1].start()
        server.wait_for("two waits", lambda: 'waiting_lora_adapters="two"' in labels())
        for caller in callers:
            caller.join()
