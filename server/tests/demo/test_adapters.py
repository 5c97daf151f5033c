"""docs/concepts/adapters.md: the whole server answers with adapters that peft has made for the demo model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.over_http import error_of
from server.tests.engine import lora
from server.tests.server_process import ServerProcess
from tests.web_socket import Caller

LOAD, UNLOAD, TEXT = "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/completions"
QUESTION = {"prompt": "The operator", "max_tokens": 12, "temperature": 0, "logprobs": 5}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    model, made = resolve_model("embedded://demo"), {}
    for number, name in enumerate(("sql", "poems")):
        folder = tmp_path_factory.mktemp(name)
        made[name] = f"file://{lora.save(model, folder, number, **lora.KINDS[number])}"
    return made


@pytest.fixture(scope="module")
def server(paths: dict[str, str]) -> Iterator[ServerProcess]:
    flags = "--served-model-name", "demo", "--device", "cpu", "--dtype", "float32", "--enable-lora"
    with ServerProcess(*flags, "--max-loras", "2", "--lora-modules", f"sql={paths['sql']}") as server:
        yield server.wait_ready()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def text_of(client: httpx.Client, model: str) -> str:
    answer = client.post(TEXT, json=QUESTION | {"model": model})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_an_adapter_answers_by_its_name_until_it_is_let_go(
    client: httpx.Client, paths: dict[str, str]
) -> None:
    base, sql = text_of(client, "demo"), text_of(client, "demo:sql")
    assert client.post(LOAD, json={"lora_name": "poems", "lora_path": paths["poems"]}).status_code == 200
    assert client.get("/load").json()["adapters"] == ["poems", "sql"]
    poems = text_of(client, "poems")
    assert len({base, sql, poems}) == 3
    assert (text_of(client, "demo"), text_of(client, "sql")) == (base, sql)
    assert client.post(UNLOAD, json={"lora_name": "poems"}).status_code == 200
    assert client.post(TEXT, json=QUESTION | {"model": "poems"}).status_code == 404
    assert text_of(client, "demo:sql") == sql


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
def test_a_websocket_which_the_gateway_passes_to_anybody_changes_no_adapters(
    server: ServerProcess, client: httpx.Client, paths: dict[str, str], path: str
) -> None:
    with Caller(server) as caller:
        caller.ask(
            path,
            {"lora_name": "poems" if path == LOAD else "sql"}
            | ({"lora_path": paths["poems"]} if path == LOAD else {}),
        )
        [refused], status = caller.answer()
    assert status == 404
    assert path in refused["error"]["message"]
    assert client.get("/load").json()["adapters"] == ["sql"]


def test_an_adapter_of_another_model_is_refused_with_the_layer_and_nothing_changes(
    client: httpx.Client, tmp_path: Path, paths: dict[str, str]
) -> None:
    config = Path(paths["sql"].removeprefix("file://")) / "adapter_config.json"
    (tmp_path / "adapter_config.json").write_bytes(config.read_bytes())
    lora.save_tensors(tmp_path, {"base_model.model.model.layers.0.self_attn.q_proj": (4, 64, 64)})
    refused = client.post(LOAD, json={"lora_name": "other", "lora_path": str(tmp_path)})
    assert refused.status_code == 400
    error = error_of(refused)
    assert (error["param"], error["code"]) == ("lora_path", "adapter_unfit")
    assert "model.layers.0.self_attn.q_proj: lora_A is [4, 64]" in error["message"]
    assert client.get("/load").json()["adapters"] == ["sql"]


def test_a_folder_that_is_not_there_is_404(client: httpx.Client) -> None:
    refused = client.post(LOAD, json={"lora_name": "other", "lora_path": "/nowhere"})
    assert refused.status_code == 404
    assert (error_of(refused)["param"], error_of(refused)["code"]) == ("lora_path", "adapter_not_found")


def test_an_answer_goes_on_while_adapters_are_loaded_replaced_and_let_go(
    client: httpx.Client, paths: dict[str, str]
) -> None:
    body = QUESTION | {"model": "sql", "max_tokens": 400, "ignore_eos": True, "logprobs": None}
    expected = client.post(TEXT, json=body).json()["choices"][0]["text"]
    found: list[str] = []

    def ask() -> None:
        found.append(httpx.post(f"{client.base_url}{TEXT}".replace("//v1", "/v1"), json=body, timeout=60).json()["choices"][0]["text"])  # fmt: skip

    caller = threading.Thread(target=ask)
    caller.start()
    while client.get("/load").json()["running"] == 0 and caller.is_alive():
        time.sleep(0.001)
    changes = [
        (LOAD, "poems", "poems"),
        (LOAD, "poems", "sql"),
        (UNLOAD, "poems", ""),
        (LOAD, "sql", "poems"),
    ]
    for path, name, source in changes:
        asked = {"lora_name": name} | ({"lora_path": paths[source]} if source else {})
        assert client.post(path, json=asked).status_code == 200
    caller.join()
    assert found == [expected], "the tokens of the weights that it began with"
    assert client.post(LOAD, json={"lora_name": "sql", "lora_path": paths["sql"]}).status_code == 200
    assert client.post(TEXT, json=body).json()["choices"][0]["text"] == expected


def test_a_server_does_not_start_with_an_adapter_that_it_cannot_serve(
    tmp_path: Path, paths: dict[str, str]
) -> None:
    config = Path(paths["sql"].removeprefix("file://")) / "adapter_config.json"
    (tmp_path / "adapter_config.json").write_text(
        config.read_text().replace('"use_dora": false', '"use_dora": true')
    )
    lora.save_tensors(tmp_path, {"base_model.model.model.layers.0.self_attn.q_proj": (4, 128, 128)})
    with ServerProcess("--device", "cpu", "--enable-lora", "--lora-modules", f"sql={tmp_path}") as server:
        assert server.wait_exit() == 2
        assert "use_dora is set" in "\n".join(server.lines)
