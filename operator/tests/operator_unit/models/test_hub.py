"""docs/concepts/models.md: an `hf://` source is resolved to the commit of its branch, once for a revision.

A stub of the hub's HTTP API answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from llmendpoint_operator.core.models.identity import HubModel, Identity, split_hub
from llmendpoint_operator.observe.models.hub import Hub, Question
from tests.hub_stub import MODEL
from tests.hub_stub import Hub as HubStub

KEY = ("team-a", "chat")
FIRST, SECOND = "1" * 40, "2" * 40


class Asker:
    """A Hub, and how often it woke the key."""

    def __init__(self, url: str) -> None:
        self.hub = Hub(url, self._woken, retry_s=0.05)
        self.woken: list[tuple[str, str]] = []

    def _woken(self, key: tuple[str, str]) -> None:
        self.woken.append(key)

    async def answer(self, revision: str, model: str = MODEL) -> Identity:
        for _ in range(1000):
            self.hub.ask(KEY, Question(revision, HubModel(model, "main")))
            found = self.hub.of(KEY)
            if found is not None:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError("the hub said nothing")


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[HubStub]:
    found = HubStub({FIRST: tmp_path, SECOND: tmp_path}, main=FIRST)
    yield found
    found.close()


@pytest.fixture
async def asker(stub: HubStub) -> AsyncIterator[Asker]:
    found = Asker(stub.url)
    yield found
    found.hub.forget(KEY)


@pytest.mark.parametrize(
    ("source", "model"),
    [
        ("hf://acme/demo", HubModel("acme/demo", "main")),
        ("hf://acme/demo@v1.0", HubModel("acme/demo", "v1.0")),
        ("embedded://demo", None),
        ("file:///hf://x", None),
    ],
)
def test_a_source_names_a_model_and_a_branch(source: str, model: HubModel | None) -> None:
    assert split_hub(source) == model


async def test_one_revision_keeps_its_commit_though_main_moves_and_the_next_has_the_new_one(
    stub: HubStub, asker: Asker
) -> None:
    assert await asker.answer("blue") == Identity(FIRST)
    stub.main = SECOND
    assert await asker.answer("blue") == Identity(FIRST)
    assert asker.woken == [KEY]
    assert len(stub.requests) == 1
    assert await asker.answer("green") == Identity(SECOND)


async def test_a_hub_that_is_down_is_asked_again_and_the_key_woken(stub: HubStub, asker: Asker) -> None:
    stub.down = True
    found = await asker.answer("blue")
    assert (found.commit, found.permanent) == ("", False)
    assert "503" in found.problem
    stub.down = False
    for _ in range(1000):
        if (found := await asker.answer("blue")).commit:
            break
        await asyncio.sleep(0.01)
    assert found == Identity(FIRST)
    assert asker.woken == [KEY, KEY]


async def test_a_model_that_is_not_there_is_said_to_be_so(asker: Asker) -> None:
    found = await asker.answer("blue", "acme/nothing")
    assert found.permanent
    assert "acme/nothing" in found.problem
