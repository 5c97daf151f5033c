"""docs/concepts/architecture.md: FlashInfer serves on CUDA what torch's kernel lacks, if it is installed.

It runs on CUDA only: here a class that computes the same from the same arguments stands for it.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import GONE, Sequence
from llmendpoint_server.engine.attention import choice, flashinfer
from llmendpoint_server.engine.attention.base import Backend, Rules
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
from llmendpoint_server.engine.attention.choice import Needs, choose, reference
from llmendpoint_server.engine.attention.flashinfer import FlashInfer, lacks
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.trial import fails

CPU = torch.device("cpu")
PLAIN = Rules(0.2, None, None, None)
CAPPED = Rules(0.2, 20, 5.0, None)
SINKS = Rules(0.2, None, None, torch.zeros(4))


@pytest.fixture(autouse=True)
def _no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernels serve first."""
    monkeypatch.setattr("llmendpoint_server.engine.attention.triton.missing", "triton is not installed")


class Wrapper:
    """What FlashInfer's wrapper of this name computes, in plain operators."""

    plans = 0

    def __init__(self, workspace: torch.Tensor, layout: str) -> None:
        assert workspace.dtype is torch.uint8
        assert layout == "NHD"

    def plan(self, query_ends, page_ends, pages, last, heads, kv_heads, dim, page_size, **rules) -> None:  # type: ignore[no-untyped-def]  # as many as the library has
        assert all(numbers.dtype is torch.int32 for numbers in (query_ends, page_ends, pages, last))
        assert rules["causal"]
        Wrapper.plans += 1
        self._rows = query_ends.tolist(), page_ends.tolist(), pages.long(), last.tolist()
        self._repeat, self._size, self._rules = heads // kv_heads, page_size, rules

    def run(self, query: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        query_ends, page_ends, pages, last = self._rows
        out = torch.empty_like(query)
        for n, tail in enumerate(last):
            own = pages[page_ends[n] : page_ends[n + 1]]
            count = (len(own) - 1) * self._size + tail
            keys, values = (
                x[own].flatten(0, 1)[:count].repeat_interleave(self._repeat, 1).transpose(0, 1) for x in cache
            )
            rows = slice(query_ends[n], query_ends[n + 1])
            scores = query[rows].transpose(0, 1) @ keys.transpose(1, 2) * self._rules["sm_scale"]
            if cap := self._rules["logits_soft_cap"]:
                scores = torch.tanh(scores / cap) * cap
            places = torch.arange(count - (rows.stop - rows.start), count)[:, None]
            unseen = torch.arange(count)[None] > places
            if (left := self._rules["window_left"]) >= 0:
                unseen |= torch.arange(count)[None] < places - left
            out[rows] = (scores.masked_fill(unseen, float("-inf")).softmax(-1) @ values).transpose(0, 1)
        return out


def layer(dim: int = 64) -> LayerCache:
    one = torch.zeros(1, 2, 1, dim)
    return PagedCache(1, 16).layer(0, one, one, None)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer, "library", SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=Wrapper))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("rules", [PLAIN, CAPPED], ids=["plain", "soft cap and window"])
def test_every_position_equals_the_references(rules: Rules) -> None:
    make = partial(FlashInfer, device=CPU, dtype=torch.float32)
    assert fails(make, reference(CPU, torch.float32), (layer(),), (rules,)) is None


@pytest.mark.usefixtures("installed")
def test_a_step_is_planned_once_for_all_layers_of_a_kind() -> None:
    backend = FlashInfer(8, CPU, torch.float32)
    one = Sequence(Request("a", (0,), SamplingParams(1)), 0, [0] * 40, [], table=[5, 2, 7])
    before = Wrapper.plans
    for place in (20, 21):
        step = backend.prepare(Batch((Scheduled(one, place, 1),), 0.0))
        for number in range(3):
            rules = CAPPED if number == 2 else PLAIN
            backend.attend(step, number, *[torch.randn(1, 2, 1, 64) for _ in range(3)], rules)
    assert Wrapper.plans - before == 2 * 2


def test_a_page_that_a_window_has_passed_is_named_by_one_of_the_sequences_own() -> None:
    one = Sequence(Request("a", (0,), SamplingParams(1)), 0, [0] * 40, [], table=[GONE, 2, 7])
    rows = [Scheduled(one, 38, 2), Scheduled(one, 31, 1)]
    _, ends, pages, last = flashinfer._paged_rows(rows, CPU)
    assert ends.tolist() == [0, 3, 5]
    assert pages.tolist() == [7, 2, 7, 2, 2]
    assert last.tolist() == [8, 16]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("dtype", "dim", "rules", "lack"),
    [
        (torch.bfloat16, 64, CAPPED, None),
        (torch.float32, 64, CAPPED, "float32"),
        (torch.bfloat16, 48, CAPPED, "no heads of 48"),
        (torch.bfloat16, 64, SINKS, "sinks"),
    ],
)
def test_it_serves_only_what_it_has(dtype: torch.dtype, dim: int, rules: Rules, lack: str | None) -> None:
    found = lacks(dtype, layer(dim), rules)
    assert found is None if lack is None else lack in str(found)


@pytest.mark.usefixtures("installed")
def test_it_serves_a_soft_cap_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _chosen(monkeypatch) is FlashInfer


def test_without_it_torchs_operators_serve_a_soft_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer, "library", None)
    assert _chosen(monkeypatch) is Gathered


def _chosen(monkeypatch: pytest.MonkeyPatch) -> type[Backend]:
    monkeypatch.setattr(choice, "fails", lambda *_: None)
    made = choose(Needs(torch.device("cuda"), torch.bfloat16, (layer(),), (CAPPED,)), None)
    assert isinstance(made, partial)
    return made.func  # type: ignore[return-value]  # a class
