"""docs/concepts/sizing.md: of a hub's model the operator reads config.json and the sizes of the files, and says what it cannot read.

A stub of the hub's HTTP API answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from llmendpoint_operator.core.capacity.findings import Finding, HubQuestion
from llmendpoint_operator.core.models.identity import HubModel
from llmendpoint_operator.observe.capacity.findings import ATTEMPTS, LARGEST_ANSWER, HubModels
from tests.hub_stub import MODEL, Hub

KEY = ("team-a", "chat")
COMMIT = "1" * 40
CONFIG = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "dtype": "bfloat16",
}  # fmt: skip


class Asker:
    def __init__(self, url: str) -> None:
        self.woken: list[tuple[str, str]] = []
        self.models = HubModels(url, self.woken.append, retry_s=0.01)

    async def answer(self, commit: str = COMMIT, model: str = MODEL) -> Finding:
        for _ in range(1000):
            self.models.ask(KEY, HubQuestion(HubModel(model, "main"), commit))
            found = self.models.of(KEY)
            if found is not None:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError("nothing was found, not even a problem")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 4000)
    return tmp_path


@pytest.fixture
def stub(folder: Path) -> Iterator[Hub]:
    found = Hub({COMMIT: folder}, main=COMMIT)
    yield found
    found.close()


@pytest.fixture
async def asker(stub: Hub) -> AsyncIterator[Asker]:
    found = Asker(stub.url)
    yield found
    found.models.forget(KEY)


async def test_a_model_is_its_config_and_the_sizes_of_its_files(stub: Hub, asker: Asker) -> None:
    found = await asker.answer()
    assert found.model is not None
    assert found.model.weights == {"BF16": 4000}
    await asker.answer()
    assert len(stub.requests) == 2
    assert asker.woken == [KEY]


async def test_a_hub_that_is_away_for_a_moment_is_asked_again(stub: Hub, asker: Asker) -> None:
    stub.down = True
    asker.models.ask(KEY, HubQuestion(HubModel(MODEL, "main"), COMMIT))
    for _ in range(1000):
        if stub.requests:
            break
        await asyncio.sleep(0.001)
    stub.down = False
    assert (await asker.answer()).model is not None


async def test_a_hub_that_stays_away_is_a_problem_and_not_for_ever_a_question(
    stub: Hub, asker: Asker
) -> None:
    stub.down = True
    found = await asker.answer()
    assert "503" in found.problem
    assert len(stub.requests) == ATTEMPTS


async def test_a_config_that_says_too_little_is_named(folder: Path, asker: Asker) -> None:
    (folder / "config.json").write_text("{}")
    assert "hidden_size" in (await asker.answer()).problem


@pytest.mark.parametrize(
    "config", ["x" * (LARGEST_ANSWER + 1), "[" * 100_000, "[]", "7", "null", '{"hidden_size": []}'],
    ids=["large", "nested", "list", "number", "null", "wrong type"],
)  # fmt: skip
async def test_a_config_that_is_not_one_is_a_problem_of_its_endpoint_alone(
    folder: Path, asker: Asker, config: str
) -> None:
    """Whoever may upload a model to the hub writes it; the operator reads it for everybody."""
    (folder / "config.json").write_text(config)
    found = await asker.answer()
    assert found.model is None
    assert found.problem


async def test_who_asks_no_more_is_forgotten(asker: Asker) -> None:
    await asker.answer()
    asker.models.ask(KEY, None)
    assert asker.models.of(KEY) is None
