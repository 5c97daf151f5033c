"""docs/concepts/architecture.md: the fastest attention backend that can do what a model's layers ask for serves it."""

from __future__ import annotations

import pytest
import torch

from llmendpoint_server.engine import native
from llmendpoint_server.engine.attention.base import Backend, Rules
from llmendpoint_server.engine.attention.cache import PagedCache
from llmendpoint_server.engine.attention.choice import Needs, choose
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.in_place import InPlace

CPU = torch.device("cpu")
PLAIN = Rules(0.125, None, None, None)


def needs(
    key_dim: int = 64, value_dim: int = 64, dtype: torch.dtype = torch.float32, rules: Rules = PLAIN
) -> Needs:
    cache = PagedCache(1, 16)
    key, value = (torch.zeros(1, 2, 1, dim, dtype=dtype) for dim in (key_dim, value_dim))
    return Needs(CPU, dtype, (cache.layer(0, key, value, rules.sliding_window),), (rules,))


@pytest.mark.parametrize(("key_dim", "backend"), [(64, InPlace), (63, Gathered)])
def test_on_a_cpu_the_kernels_serve_what_they_can_read(key_dim: int, backend: type[Backend]) -> None:
    kernels = native.find(CPU, torch.float32)
    if kernels is None:
        pytest.skip("no CPU kernels here")
    made = choose(needs(key_dim), kernels)(3)
    assert type(made) is backend
    assert made.cache.pages == 3


def test_without_kernels_torchs_operators_serve() -> None:
    assert type(choose(needs(), None)(3)) is Gathered
