"""docs/concepts/architecture.md: the backend for CUDA gives torch's kernel what the reference computes with.

The kernel itself runs on CUDA only: here a plain function that computes the same stands for it.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from llmendpoint_server.engine.attention import choice
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
from llmendpoint_server.engine.attention.choice import Needs, choose, reference
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.trial import fails
from llmendpoint_server.engine.attention.varlen import Varlen, lacks
from llmendpoint_server.engine.step import Step

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
PLAIN = Rules(0.2, None, None, None)
WINDOW = Rules(0.2, 20, None, None)


@pytest.fixture(autouse=True)
def _no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernels serve first."""
    monkeypatch.setattr("llmendpoint_server.engine.attention.triton.missing", "triton is not installed")


def layer(kv_heads: int = 2, key_dim: int = 16, value_dim: int = 16) -> LayerCache:
    key, value = (torch.zeros(1, kv_heads, 1, dim) for dim in (key_dim, value_dim))
    return PagedCache(1, 16).layer(0, key, value, None)


@pytest.mark.usefixtures("varlen_on_cpu")
@pytest.mark.parametrize("rules", [PLAIN, WINDOW], ids=["plain", "window"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_every_position_equals_the_references(kv_heads: int, rules: Rules) -> None:
    make = partial(Varlen, device=CPU, dtype=torch.float32)
    assert fails(make, reference(CPU, torch.float32), (layer(kv_heads),), (rules,)) is None


@pytest.mark.parametrize(
    ("dtype", "one", "rules", "lack"),
    [
        (torch.bfloat16, layer(), PLAIN, None),
        (torch.float16, layer(), WINDOW, None),
        (torch.float32, layer(), PLAIN, "float32"),
        (torch.bfloat16, layer(key_dim=24, value_dim=16), PLAIN, "no heads of 24 and 16"),
        (torch.bfloat16, layer(key_dim=12, value_dim=12), PLAIN, "no heads of 12 and 12"),
        (torch.bfloat16, layer(key_dim=512, value_dim=512), PLAIN, "no heads of 512"),
        (torch.bfloat16, layer(), Rules(0.2, None, 30.0, None), "no soft cap"),
        (torch.bfloat16, layer(), Rules(0.2, None, None, torch.zeros(4)), "no sinks"),
    ],
)
def test_the_kernel_serves_only_what_it_has(
    dtype: torch.dtype, one: LayerCache, rules: Rules, lack: str | None
) -> None:
    found = lacks(dtype, one, rules)
    assert found is None if lack is None else lack in str(found)


@pytest.mark.parametrize(
    ("cause", "rules", "backend"),
    [
        (None, (PLAIN, WINDOW), Varlen),
        ("it raised", (PLAIN, WINDOW), Gathered),
        (None, (PLAIN, Rules(0.2, None, 30.0, None)), Gathered),
    ],
)
def test_on_cuda_it_serves_if_every_layer_can_have_it_and_it_computed_what_the_reference_does(
    cause: str | None, rules: tuple[Rules, ...], backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "fails", lambda make, *_: cause if make.func is Varlen else None)
    made = choose(Needs(CUDA, torch.bfloat16, (layer(), layer()), rules), None)
    assert isinstance(made, partial)
    assert made.func is backend


class Wrong(Gathered):
    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        if len(states.query[0, 0]) == 2:  # the decode step
            raise NotImplementedError("no such kernel")
        return super().compute(step, pages, states, rules)


class Other(Gathered):
    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        return super().compute(step, pages, states, Rules(rules.scale * 1.3, None, None, None))


@pytest.mark.parametrize(
    ("backend", "cause"),
    [(Gathered, None), (Wrong, "NotImplementedError: no such kernel"), (Other, "differs")],
)
def test_a_backend_that_raises_or_computes_something_else_is_passed_over(
    backend: type[Gathered], cause: str | None
) -> None:
    make = partial(backend, page_size=16, device=CPU, dtype=torch.float32)
    found = fails(make, reference(CPU, torch.float32), (layer(),), (PLAIN,))
    assert found is None if cause is None else cause in str(found)
