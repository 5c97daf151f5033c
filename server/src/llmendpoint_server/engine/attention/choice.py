"""Which attention backend serves a model: the fastest one that can do what its layers ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import structlog
import torch

from llmendpoint_server.engine.attention import flashinfer, triton, varlen
from llmendpoint_server.engine.attention.base import Backend, Rules
from llmendpoint_server.engine.attention.cache import PAGE_SIZE, LayerCache
from llmendpoint_server.engine.attention.flashinfer import FlashInfer
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.attention.in_place import InPlace, reads
from llmendpoint_server.engine.attention.trial import fails
from llmendpoint_server.engine.attention.triton import Triton
from llmendpoint_server.engine.attention.varlen import Varlen
from llmendpoint_server.engine.native import Kernels

MakeBackend = Callable[[int], Backend]
"""A backend with so many pages."""


KvDtype = Literal["auto", "int8", "fp8"]
KEPT: Mapping[KvDtype, torch.dtype] = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
"""What pages of eight bits are kept in."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the layers of a model ask of attention, and where they run."""

    device: torch.device
    dtype: torch.dtype
    layers: tuple[LayerCache, ...]
    rules: tuple[Rules, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend, and why it cannot serve; None if it can."""

    name: str
    make: MakeBackend
    lacks: str | None


def reference(device: torch.device, dtype: torch.dtype) -> MakeBackend:
    """Torch's own operators: they serve every model, and the others are compared with them."""
    return partial(Gathered, page_size=PAGE_SIZE, device=device, dtype=dtype)


def choose(needs: Needs, kernels: Kernels | None) -> MakeBackend:
    """The first candidate that can serve. The log says which one, and what those before it lack."""
    lacking: dict[str, str] = {}
    for candidate in _candidates(needs, kernels):
        cause = candidate.lacks
        if cause is None and needs.device.type == "cuda":  # on a CPU the tests have shown what each computes
            cause = fails(candidate.make, reference(needs.device, needs.dtype), needs.layers, needs.rules)
        if cause is None:
            break
        lacking[candidate.name] = cause
    structlog.get_logger().info("attention", backend=candidate.name, without=lacking)
    return candidate.make


def in_eight_bits(needs: Needs, kernels: Kernels | None, kept: torch.dtype) -> MakeBackend | None:
    """The backend whose pages are of eight bits; None if it cannot serve these layers. Only the CPU kernels have such pages."""
    if kernels is None or not all(reads(kernels, layer) for layer in needs.layers):
        return None
    return partial(_in_place, kernels, needs.dtype, kept)


def _candidates(needs: Needs, kernels: Kernels | None) -> Iterator[Candidate]:
    """In the order of their speed. The last one serves all."""
    device, dtype = needs.device, needs.dtype
    if device.type == "cuda":
        for name, backend, lacks in (
            ("triton", Triton, triton.lacks),
            ("varlen", Varlen, varlen.lacks),
            ("flashinfer", FlashInfer, flashinfer.lacks),
        ):
            causes = (lacks(dtype, *one) for one in zip(needs.layers, needs.rules, strict=True))
            cause = next((cause for cause in causes if cause), None)
            yield Candidate(name, partial(backend, device=device, dtype=dtype), cause)
    if device.type == "cpu" and kernels is not None:
        unread = not all(reads(kernels, layer) for layer in needs.layers)
        cause = "the kernels do not read heads of this size" if unread else None
        yield Candidate("in place", partial(_in_place, kernels, dtype, None), cause)
    yield Candidate("gathered", reference(device, dtype), None)


def _in_place(kernels: Kernels, dtype: torch.dtype, kept: torch.dtype | None, pages: int) -> Backend:
    return InPlace(kernels, pages, dtype, kept)
