"""Brings a model up: loads it, checks it, makes it fast, and sizes its KV cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
import torch
from msgspec.structs import replace

from llmendpoint_server.core.batch_limits import sequences_that_pay, tokens_in_time
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.speculation import PromptLookup, Proposer
from llmendpoint_server.engine import gate, loading, measuring, native
from llmendpoint_server.engine.adapters.stack import Stack
from llmendpoint_server.engine.basis import Basis
from llmendpoint_server.engine.draft_model import (
    MEMORY_SHARE,
    SEQUENCES,
    DraftModel,
    check_vocabulary,
)
from llmendpoint_server.engine.graphs import CudaRecorder, sizes_for
from llmendpoint_server.engine.headroom import Headroom, free_for_cache
from llmendpoint_server.engine.loading import Folder
from llmendpoint_server.engine.machine import available_memory
from llmendpoint_server.engine.measuring import StepTimes
from llmendpoint_server.engine.parallel.dividing import check_divisible
from llmendpoint_server.engine.parallel.ranks import Ranks, start
from llmendpoint_server.engine.preparing import Prepared, prepare
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.engine.sampling.masks import Masks
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.guidance import make_tokenizer
from llmendpoint_server.protocol import Configure
from llmendpoint_server.resources import usable_threads

CPU_MEMORY_SHARE = 0.5
"""Of the memory that is free once the weights are loaded; the rest is for activations. On CUDA what they take is measured."""
CUDA_LIMITS = 256, 8192
"""Sequences and tokens of a step. On CPU they are measured."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was loaded, and the limits that follow from it."""

    architecture: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    device: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_batched_tokens: int
    kv_pages: int
    page_size: int
    """tokens of a page"""
    sliding_window: int | None
    """the most keys that a query sees in any layer; None if a layer has no window"""
    load_seconds: float
    attention: str = "none"
    """the backend's class, in lower case"""
    kernels: str = "none"
    """the variant of the CPU kernels"""
    make_proposer: Callable[[], Proposer] = PromptLookup
    """what guesses ahead, if anything is to"""
    kv_dtype: str = ""
    """what pages are kept in"""
    quantization: str = "none"
    """what the weights were quantized by: on load, or the checkpoint's format"""


def load(settings: Configure) -> tuple[ModelRunner, ModelInfo]:
    """Load the model, in seconds to minutes. Raises LoadError with the cause."""
    began = time.monotonic()
    basis = Basis.of(settings)
    if settings.tensor_parallel_size == 1:
        return _load(settings, basis, None, began)
    check_divisible(settings, basis.folder, basis.form)
    ranks = start(settings, basis.device)
    try:
        return _load(settings, basis, ranks, began)
    except Exception as error:  # any: a rank that failed may be its cause
        raise ranks.failure(error) from error


def _load(
    settings: Configure, basis: Basis, ranks: Ranks | None, began: float
) -> tuple[ModelRunner, ModelInfo]:
    """With `ranks`: each of them makes the same as this one, and from then on what this one says."""
    folder, form, device, dtype = basis.folder, basis.form, basis.device, basis.dtype
    prepared = basis.prepare(settings, ranks.group if ranks else None)
    model, make_backend, kernels = prepared.model, prepared.make_backend, prepared.kernels
    make_backend = ranks.leading(make_backend) if ranks else make_backend
    probe = prepared.probe
    stack = None
    if settings.max_loras:
        stack = make_stack(settings, prepared, device, dtype)
    page_size = make_backend(1).cache.page_size
    bytes_per_page = probe.bytes_per_page * page_size // probe.page_size
    vocab_size = int(loading.text_config(model.config).vocab_size)
    longest = wanted_length(settings, loading.config_max_model_len(model.config))
    draft = Draft(settings, folder, vocab_size, longest, device, dtype) if settings.draft_model_path else None

    def measured() -> tuple[int, int]:
        if device.type != "cpu":
            return CUDA_LIMITS
        spare = ModelRunner(model, make_backend(measuring.PAGES + 1), kernels, ranks=ranks)
        times = measuring.measure(spare, vocab_size, longest)
        return limits_of(times, settings.max_num_seqs)

    max_num_seqs, max_batched_tokens = batch_limits(settings, measured)
    structlog.get_logger().info(
        "batch limits", max_num_seqs=max_num_seqs, max_batched_tokens=max_batched_tokens
    )
    limits = max_num_seqs, max_batched_tokens, longest
    free = _free_memory(ModelRunner(model, make_backend(2), ranks=ranks), device, limits, ranks)
    free = max(0, free - draft.take(free)) if draft else free
    pages, max_model_len = size_cache(settings, free, page_size, bytes_per_page, longest, max_num_seqs)
    ends = loading.eos_token_ids(model)
    masks = Masks(lambda: make_tokenizer(folder.path, vocab_size, ends), usable_threads(), vocab_size)
    runner = ModelRunner(model, make_backend(pages + 1), kernels, masks, stack, ranks)
    if ranks is not None:
        ranks.reserve(runner.backend, max_num_seqs, max_batched_tokens, max_model_len)
    elif device.type == "cuda" and runner.backend.captures:
        runner.capture(CudaRecorder(device), max_num_seqs, max_batched_tokens, max_model_len)
    info = ModelInfo(
        architecture=folder.architecture,
        vocab_size=vocab_size,
        eos_token_ids=ends,
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        kv_pages=pages,
        page_size=page_size,
        sliding_window=probe.widest_window,
        load_seconds=time.monotonic() - began,
        attention=type(runner.backend).__name__.lower(),
        kernels=kernels.variant if kernels else "none",
        make_proposer=draft.model().follower if draft else PromptLookup,
        kv_dtype=settings.kv_cache_dtype
        if settings.kv_cache_dtype != "auto"
        else str(dtype).removeprefix("torch."),
        quantization=settings.quantization or (form.title if form else "GGUF" if folder.gguf else "none"),
    )
    return runner, info


class Draft:
    """A draft model on its way up: loaded and checked at once, before memory is measured; its pages are made last."""

    def __init__(
        self,
        settings: Configure,
        folder: Folder,
        vocab_size: int,
        longest: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        own = loading.open_folder(settings.draft_model_path or "")
        form = gate.refuse_by_config(own.architecture, own.config)
        size = int(loading.text_config(own.config).vocab_size)
        check_vocabulary(folder.path, own.path, (vocab_size, size))
        prepared = prepare(
            own, form, device, dtype, native.find(device, dtype), replace(settings, max_loras=0)
        )
        self._model, probe, self._kernels = prepared.model, prepared.probe, prepared.kernels
        self._make_backend = prepared.make_backend
        self._longest = min(longest, loading.config_max_model_len(self._model.config))
        self._page_size = self._make_backend(1).cache.page_size
        self._bytes_per_page = probe.bytes_per_page * self._page_size // probe.page_size
        self._pages = 0

    def take(self, free: int) -> int:
        """Bytes of its pages, of the `free` ones for KV caches."""
        wanted = SEQUENCES * -(-self._longest // self._page_size)
        self._pages = min(wanted, int(free * MEMORY_SHARE) // self._bytes_per_page)
        return (self._pages + 1) * self._bytes_per_page

    def model(self) -> DraftModel:
        runner = ModelRunner(self._model, self._make_backend(self._pages + 1), self._kernels)
        return DraftModel(runner, BlockManager(self._pages, self._page_size), self._longest)


def make_stack(settings: Configure, prepared: Prepared, device: torch.device, dtype: torch.dtype) -> Stack:
    """Room for the adapters, before what is free for the KV cache is measured. Raises BadConfiguration."""
    places, rank = settings.max_loras + 1, settings.max_lora_rank  # one more, see core/adapters.py
    like = torch.empty(0, dtype=dtype, device=device)
    stack = Stack(prepared.model, prepared.linears, places, rank, like)
    structlog.get_logger().info("room for adapters", places=places, rank=rank, bytes=stack.bytes)
    return stack


def batch_limits(settings: Configure, measured: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """The most sequences and the most tokens of a step: what is set, otherwise what `measured` says. Each sequence computes
    at least one token, so that what is not set gives way to what is."""
    if settings.max_num_seqs and settings.max_batched_tokens:
        return settings.max_num_seqs, settings.max_batched_tokens
    sequences, tokens = measured()
    tokens = settings.max_batched_tokens or tokens
    sequences = settings.max_num_seqs or min(sequences, tokens)
    return sequences, max(tokens, sequences)


def limits_of(times: StepTimes, max_num_seqs: int | None = None) -> tuple[int, int]:
    """What pays on this machine, with room for prompts beside `max_num_seqs` if it is set. A line in the log has the times."""
    sequences = max_num_seqs or sequences_that_pay(times.decodes)
    structlog.get_logger().info(
        "step times",
        decode_ms={step.size: round(1000 * step.seconds, 2) for step in times.decodes},
        prompt_ms={step.size: round(1000 * step.seconds, 2) for step in times.prompts},
    )
    return sequences, tokens_in_time(times.prompts or times.decodes, sequences)


def wanted_length(settings: Configure, made_for: int) -> int:
    """The longest sequence that is served if there is memory for it. Raises BadConfiguration if it is longer than the model was
    made for: its steps fail, and on CUDA the device with them."""
    if settings.max_model_len is not None and settings.max_model_len > made_for:
        raise BadConfiguration(
            f"--max-model-len is {settings.max_model_len}; this model was made for at most {made_for}."
        )
    return settings.max_model_len or made_for


def size_cache(
    settings: Configure,
    free: int,
    page_size: int,
    bytes_per_page: int,
    max_model_len: int,
    max_num_seqs: int,
) -> tuple[int, int]:
    """The number of pages, and the longest sequence that they allow, at most `max_model_len`. `free`: bytes that the cache may have.
    Raises BadConfiguration if the length that is set does not fit."""
    if settings.kv_cache_memory is not None:
        budget = settings.kv_cache_memory
    else:  # what is free, but no more than a full batch of longest sequences takes
        budget = min(free, max_num_seqs * -(-max_model_len // page_size) * bytes_per_page)
    pages = budget // bytes_per_page
    if pages * page_size >= max_model_len:
        return pages, max_model_len
    if settings.max_model_len is not None or pages < 1:
        need = -(-max_model_len // page_size) * bytes_per_page
        shorter = f"--max-model-len to at most {pages * page_size}, or " if pages else ""
        raise BadConfiguration(
            f"A sequence of {max_model_len} tokens needs {need} bytes of KV cache, and there are {budget}: set "
            f"{shorter}--kv-cache-memory to at least {need}."
        )
    return pages, pages * page_size


def _free_memory(
    runner: ModelRunner, device: torch.device, limits: tuple[int, int, int], ranks: Ranks | None
) -> int:
    """Bytes that the KV cache may have; of several ranks, what the one with the least may have. `runner`: as the largest step needs
    it, with a page. `limits`: the most rows, tokens of a step, and tokens of a sequence."""
    if device.type != "cuda":
        own = memory_left(Headroom(device), ranks.group.size if ranks else 1)
    else:
        graphs = len(sizes_for(limits[0])) if runner.backend.captures and ranks is None else 0
        own = free_for_cache(runner, limits, runner.backend.cache.page_size, graphs, device)
    return ranks.least(own) if ranks else own


def memory_left(headroom: Headroom, size: int) -> int:
    """Bytes of this rank's device that the KV cache may have, after the largest steps. On CPU `size` ranks share what there is."""
    if headroom.device.type != "cuda":
        return int(available_memory() * CPU_MEMORY_SHARE) // size
    return headroom.left(graphs=0)
