"""docs/guides/embeddings.md: an input that the model fails on ends its own request alone; a lost device ends the process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from llmendpoint_server.core.pooling.request import Input, PoolingRequest
from llmendpoint_server.core.pooling.scheduler import PoolingConfig, PoolingScheduler
from llmendpoint_server.core.request import FinishReason
from llmendpoint_server.engine.pooling.loop import PoolingEngine

BAD = 13


class Runner:
    """Raises on the token BAD. `broken`: on all."""

    def __init__(self) -> None:
        self.broken = False
        self.error: Exception = ValueError("bad token")

    def run(self, inputs: Sequence[Input]) -> list[bytes | None]:
        if self.broken or any(BAD in one.tokens for one in inputs):
            raise self.error
        return [bytes(one.tokens) for one in inputs]

    def check(self) -> None:
        if self.broken:
            raise RuntimeError("the device is gone")


@pytest.fixture
def engine() -> PoolingEngine:
    return PoolingEngine(Runner(), PoolingScheduler(PoolingConfig(50, 50, 16, 1000, 8, 1000)))


@pytest.mark.parametrize("place", range(4))
def test_an_input_that_raises_fails_its_request_and_the_others_get_their_vectors(
    engine: PoolingEngine, place: int
) -> None:
    for name in range(4):
        tokens = [(name,), (BAD if name == place else 20,), (30,)]
        assert engine.add(PoolingRequest(str(name), tuple(map(Input, tokens)))) == []
    result = engine.step()
    ends = {end.id: end.finish for end in result.ends}
    assert ends == {
        str(name): FinishReason.FAILED if name == place else FinishReason.STOP for name in range(4)
    }
    found = {(vector.id, vector.index): vector.values for vector in result.vectors}
    for name in set(range(4)) - {place}:
        assert [found[str(name), at] for at in range(3)] == [bytes([name]), bytes([20]), bytes([30])]
    assert engine.scheduler.idle


def test_a_device_that_computes_nothing_ends_the_engine(engine: PoolingEngine) -> None:
    engine._runner.broken = True  # type: ignore[attr-defined]
    engine.add(PoolingRequest("a", (Input((1,)),)))
    with pytest.raises(RuntimeError, match="gone"):
        engine.step()


def test_a_fault_of_the_accelerator_is_no_requests_fault(engine: PoolingEngine) -> None:
    engine._runner.broken, engine._runner.error = True, torch.AcceleratorError("lost")  # type: ignore[attr-defined]
    engine.add(PoolingRequest("a", (Input((1,)),)))
    with pytest.raises(torch.AcceleratorError):
        engine.step()


def test_a_scheduler_that_raises_loses_its_requests_and_starts_anew(
    engine: PoolingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add(PoolingRequest("a", (Input((1,)),)))
    with monkeypatch.context() as patch:
        patch.setattr(engine.scheduler, "schedule", lambda now: 1 / 0)
        assert [(end.id, end.finish) for end in engine.step().ends] == [("a", FinishReason.LOST)]
    engine.add(PoolingRequest("b", (Input((1,)),)))
    assert [(end.id, end.finish) for end in engine.step().ends] == [("b", FinishReason.STOP)]
