"""The metrics page. A metric has vLLM's name if it means the same, so that dashboards, KEDA triggers and routers work."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmendpoint_server.api.histograms import (
    ANSWERS_BUCKETS,
    FIRST_TOKEN_BUCKETS,
    LENGTH_BUCKETS,
    PHASE_BUCKETS,
    REQUEST_BUCKETS,
    TOKEN_BUCKETS,
    Distribution,
    histogram,
)
from llmendpoint_server.api.interfaces import Engine
from llmendpoint_server.api.record import Record
from llmendpoint_server.core.counters import STEP_TOKENS, Counters
from llmendpoint_server.protocol import Stats


class EngineCollector(Collector):
    """The engine's last report of itself, read at each scrape."""

    def __init__(self, engine: Engine, model: str, max_loras: int) -> None:
        self._engine, self._max_loras = engine, max_loras
        self._model = model

    def collect(self) -> Iterable[Metric]:
        stats = self._engine.stats
        done = stats.counters
        gauges = (
            ("vllm:num_requests_running", "Requests in the running batch", stats.running),
            ("vllm:num_requests_waiting", "Requests in the engine's queue", stats.waiting),
            (
                "llmendpoint:waiting_tokens",
                "Tokens of the prompts in the engine's queue",
                stats.waiting_tokens,
            ),
            (
                "vllm:kv_cache_usage_perc",
                "Share of the KV cache that requests hold now",
                stats.kv_usage,
            ),
            ("vllm:gpu_cache_usage_perc", "Older name of vllm:kv_cache_usage_perc", stats.kv_usage),
            (
                "llmendpoint:outstanding_tokens",
                "Tokens that the engine still has to compute for its requests",
                stats.outstanding_tokens,
            ),
        )
        counters = (
            ("vllm:prompt_tokens", "Prompt tokens that the engine has processed", done.prompt_tokens),
            ("vllm:generation_tokens", "Tokens that the engine has generated", done.generated_tokens),
            (
                "vllm:prefix_cache_queries",
                "Prompt tokens that the engine looked up in the prefix cache",
                done.prefix_cache_queries,
            ),
            (
                "vllm:prefix_cache_hits",
                "Prompt tokens that the engine found in the prefix cache",
                done.prefix_cache_hits,
            ),
            (
                "vllm:num_preemptions",
                "Requests that went back to the queue because the KV cache was full",
                done.preemptions,
            ),
            (
                "vllm:spec_decode_num_drafts",
                "Times that the engine guessed tokens of a request ahead (speculation)",
                done.drafts,
            ),
            (
                "vllm:spec_decode_num_draft_tokens",
                "Tokens that the engine guessed ahead",
                done.draft_tokens,
            ),
            (
                "vllm:spec_decode_num_accepted_tokens",
                "Tokens guessed ahead that the model then chose, too",
                done.accepted_tokens,
            ),
            ("llmendpoint:engine_steps", "Steps that the engine has made", done.steps),
        )
        for name, help_text, value in gauges:
            gauge = GaugeMetricFamily(name, help_text, labels=["model_name"])
            gauge.add_metric([self._model], value)
            yield gauge
        for name, help_text, value in counters:
            counter = CounterMetricFamily(name, help_text, labels=["model_name"])
            counter.add_metric([self._model], value)
            yield counter
        yield histogram(
            "vllm:iteration_tokens_total", "Tokens that one step of the engine computed", self._model,
            STEP_TOKENS, done.step_tokens, done.computed_tokens,
        )  # fmt: skip
        yield self._not_admitted(done)
        yield self._info()
        if self._max_loras:
            yield self._adapters(stats)
        yield self._cache()

    def _info(self) -> Metric:
        """A gauge and no OpenMetrics info, because Prometheus stores it under this name in both text formats."""
        loaded = self._engine.loaded
        labels = ("device", "dtype", "quantization", "attention", "kernels")
        info = GaugeMetricFamily(
            "llmendpoint:engine_info",
            "1 once the model is loaded; the labels say what the engine computes with",
            labels=["model_name", *labels],
        )
        if loaded is not None:
            info.add_metric([self._model, *(getattr(loaded, label) for label in labels)], 1)
        return info

    def _adapters(self, stats: Stats) -> Metric:
        """As vLLM has it: the labels are what changes, and the value is the time (Unix seconds)."""
        info = GaugeMetricFamily(
            "vllm:lora_requests_info",
            "The time; the labels say which LoRA adapters requests run with, and which they wait for",
            labels=["model_name", "running_lora_adapters", "waiting_lora_adapters", "max_lora"],
        )
        running, waiting = ",".join(stats.running_adapters), ",".join(stats.waiting_adapters)
        info.add_metric([self._model, running, waiting, str(self._max_loras)], time.time())
        return info

    def _cache(self) -> Metric:
        loaded = self._engine.loaded
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "1 once the model is loaded; the labels say how the KV cache is made, num_gpu_blocks on a CPU, too",
            labels=["model_name", "block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching"],
        )
        if loaded is not None:
            sizes = str(loaded.page_size), str(loaded.kv_pages)
            info.add_metric(
                [self._model, *sizes, loaded.kv_cache_dtype or loaded.dtype, str(loaded.prefix_caching)], 1
            )
        return info

    def _not_admitted(self, done: Counters) -> Metric:
        counter = CounterMetricFamily(
            "llmendpoint:requests_not_admitted",
            "Requests that the engine refused or ended before they ran (429), by the reason",
            labels=["model_name", "reason"],
        )
        reasons = {
            "queued_requests": done.refused_requests,
            "queued_tokens": done.refused_tokens,
            "deadline_expected": done.deadlines_unreachable,
            "deadline_passed": done.deadlines_passed,
        }
        for reason, value in reasons.items():
            counter.add_metric([self._model, reason], value)
        return counter


UNFINISHED = ("", "abort", "error")
PHASES = {
    "queue": "Time from the arrival of a request until the engine began to compute it",
    "prefill": "Time from when the engine began to compute a request to its first token",
    "decode": "Time from the first token of a request to its last one",
    "inference": "Time from when the engine began to compute a request to its last token",
}
TRACES = {
    "exported": "Requests whose spans the collector has taken",
    "dropped": "Requests whose spans are lost: the collector did not take them, or too many waited for it",
}
LENGTHS = {
    "prompt_tokens": ("request_prompt_tokens", "Tokens of the prompt of a request"),
    "output_tokens": ("request_generation_tokens", "Tokens that a request got, of all its answers"),
    "max_tokens": (
        "request_params_max_tokens",
        "Tokens that each answer of a request may have: what it asked for, or what the model's length leaves",
    ),
}
"""By the field of a Record."""


class Metrics:
    """Every metric of one server, in its own registry."""

    def __init__(self, engine: Engine, model: str, max_loras: int = 0) -> None:
        """`max_loras`: how many LoRA adapters there may be."""
        self._model = model
        self._registry = registry = CollectorRegistry()
        registry.register(EngineCollector(engine, model, max_loras))

        def distribution(name: str, text: str, bounds: tuple[float, ...]) -> Distribution:
            made = Distribution(f"vllm:{name}", text, model, bounds)
            registry.register(made)
            return made

        self.first_token = distribution(
            "time_to_first_token_seconds",
            "Time from the arrival of a request to its first token",
            FIRST_TOKEN_BUCKETS,
        )
        self.inter_token = distribution(
            "inter_token_latency_seconds", "Time between two tokens of an answer", TOKEN_BUCKETS
        )
        self.per_output_token = distribution(
            "request_time_per_output_token_seconds",
            "Mean time between the tokens of one answer, after its first token",
            TOKEN_BUCKETS,
        )
        self.end_to_end = distribution(
            "e2e_request_latency_seconds",
            "Time from the arrival of a request to its last token",
            REQUEST_BUCKETS,
        )
        self._phases = {
            phase: distribution(f"request_{phase}_time_seconds", text, PHASE_BUCKETS)
            for phase, text in PHASES.items()
        }
        self._lengths = {
            field: distribution(name, text, LENGTH_BUCKETS) for field, (name, text) in LENGTHS.items()
        }
        self._answers = distribution(
            "request_params_n", "Answers that a request asked for (n)", ANSWERS_BUCKETS
        )
        self._finished = Counter(
            "vllm:request_success",
            "Requests that have ended without an error, by the reason",
            ["model_name", "finished_reason"],
            registry=registry,
        )
        self._refused = Counter(
            "llmendpoint:requests_refused",
            "Requests that were answered with an error, by HTTP status",
            ["model_name", "status"],
            registry=registry,
        )
        self.traces_exported, self.traces_dropped = (
            Counter(f"llmendpoint:traces_{what}", text, ["model_name"], registry=registry).labels(model)
            for what, text in TRACES.items()
        )
        ready = Gauge(
            "llmendpoint:ready", "1 while GET /ready answers 200", ["model_name"], registry=registry
        )
        ready.labels(model).set_function(lambda: float(engine.state == "ready" and engine.failure() is None))
        for reason in ("stop", "length", "abort"):  # so that a rate() sees each from the start
            self._finished.labels(model, reason)

    def count_finished(self, reason: str) -> None:
        self._finished.labels(self._model, reason).inc()

    def observe(self, record: Record) -> None:
        """A request has ended without an error, and its caller was there until then."""
        if record.times is None or record.finish in UNFINISHED:
            return
        for phase, seconds in self._phases.items():
            seconds.observe(max(getattr(record.times, phase), 0.0))
        for field, tokens in self._lengths.items():
            tokens.observe(getattr(record, field))
        self._answers.observe(record.answers)

    def count_refused(self, status: int) -> None:
        self._refused.labels(self._model, str(status)).inc()

    def page(self) -> bytes:
        return generate_latest(self._registry)
