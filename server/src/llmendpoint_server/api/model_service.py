"""The service of a real model: its files, its tokenizer and the engine process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from llmendpoint_server.api.adapters import make_adapters
from llmendpoint_server.api.engine_client import EngineClient
from llmendpoint_server.api.engine_process import ENGINE_COMMAND
from llmendpoint_server.api.grammars import Grammars
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.sampling_defaults import SamplingDefaults, read_sampling_defaults
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.api.tools.readers import choose
from llmendpoint_server.api.traces import make_traces
from llmendpoint_server.errors import ModelNotFound
from llmendpoint_server.protocol import Configure
from llmendpoint_server.settings import Settings
from llmendpoint_server.weights.adapters import locate_adapter
from llmendpoint_server.weights.locate import content_revision, resolve_model


def make_service(settings: Settings, engine_command: Sequence[str] = ENGINE_COMMAND) -> Service:
    """Make the service without starting it, in the event loop's thread. Raises ModelNotFound."""
    folder = resolve_model(settings.model, settings.revision)
    tokenizer = ModelTokenizer(folder)
    engine = EngineClient(make_configure(settings, folder), settings.step_timeout, engine_command)
    metrics = Metrics(engine, settings.served_names[0], settings.max_loras if settings.enable_lora else 0)
    name, release, instance = settings.served_names[0], version("llmendpoint-server"), uuid.uuid4().hex
    return Service(
        engine, tokenizer, metrics, settings.served_names, _sampling(folder), release, instance, int(time.time()),
        settings.default_deadline_ms,
        make_traces(settings.otlp_traces_endpoint, settings.trace_sampling, name, release, instance, metrics),
        choose(tokenizer.template_text, settings.tool_call_parser, settings.reasoning_parser, shows_tools=tokenizer.shows_tools),
        Grammars(folder),
        make_adapters(settings, engine, locate_adapter),
    )  # fmt: skip


def make_configure(settings: Settings, folder: Path) -> Configure:
    draft = settings.draft_model
    return Configure(
        model_path=str(folder),
        model_revision=content_revision(folder),
        device=settings.device,
        dtype=settings.dtype,
        quantization=settings.quantization,
        kv_cache_dtype=settings.kv_cache_dtype,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_batched_tokens=settings.max_batched_tokens,
        max_queued_requests=settings.max_queued_requests,
        max_queued_tokens=settings.queued_tokens,
        kv_cache_memory=settings.kv_cache_memory,
        prefix_caching=settings.prefix_caching,
        speculative_method=settings.speculative_method,
        draft_model_path=str(resolve_model(draft, flag="--draft-model")) if draft else None,
        num_speculative_tokens=settings.num_speculative_tokens,
        tensor_parallel_size=settings.tensor_parallel_size,
        max_loras=settings.max_loras if settings.enable_lora else 0,
        max_lora_rank=settings.max_lora_rank,
        adapters=tuple((name, str(locate_adapter(source))) for name, source in settings.lora_modules),
    )


def _sampling(folder: Path) -> SamplingDefaults:
    try:
        return read_sampling_defaults(folder)
    except (ValueError, TypeError) as error:
        raise ModelNotFound(f"{folder}/generation_config.json cannot be used: {error}") from error
