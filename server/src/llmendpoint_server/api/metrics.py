"""The metrics page. A metric has vLLM's name if it means the same, so that dashboards, KEDA triggers and routers work."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from llmendpoint_server.api.interfaces import Engine
from llmendpoint_server.core.counters import Counters

FINE = (1, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.7, 3, 3.3, 3.6, 4, 4.4, 5, 5.5, 6, 6.6, 7.5, 8, 9)  # fmt: skip
COARSE = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
"""Bounds of one decade. A rollout compares two revisions at bounds, so it sees no change that is smaller than the step
between two of them: about 10 %, and 20 to 33 %."""


def decades(series: tuple[float, ...], low: int, high: int) -> tuple[float, ...]:
    """Bounds in seconds from 10**low to 10**high."""
    bounds = [round(digits * 10.0**power, 6) for power in range(low, high) for digits in series]
    return (*bounds, 10.0**high)


FIRST_TOKEN_BUCKETS = decades(FINE, -3, 2)
TOKEN_BUCKETS = decades(COARSE, -3, 1)
REQUEST_BUCKETS = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960)


class EngineCollector(Collector):
    """The engine's last report of itself, read at each scrape."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
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
        yield self._not_admitted(done)
        yield self._info()

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


class TokenTimes(Collector):
    """The histogram of the times between tokens. prometheus_client's own looks at each bound, under locks: that costs
    more than all else that is done for a token."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._counts = [0] * (len(TOKEN_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int) -> None:
        """The same time, so many times."""
        self._counts[bisect_left(TOKEN_BUCKETS, seconds)] += times
        self._sum += seconds * times

    def collect(self) -> Iterable[Metric]:
        bounds = map(floatToGoString, (*TOKEN_BUCKETS, math.inf))
        family = HistogramMetricFamily(
            "vllm:inter_token_latency_seconds", "Time between two tokens of an answer", labels=["model_name"]
        )
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        family.add_metric([self._model], buckets, self._sum)
        yield family


class Metrics:
    """Every metric of one server, in its own registry."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._model = model
        self._registry = registry = CollectorRegistry()
        registry.register(EngineCollector(engine, model))

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ["model_name"], buckets=buckets, registry=registry).labels(model)

        self.first_token = histogram(
            "vllm:time_to_first_token_seconds",
            "Time from the arrival of a request to its first token",
            FIRST_TOKEN_BUCKETS,
        )
        self.inter_token = TokenTimes(model)
        registry.register(self.inter_token)
        self.per_output_token = histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time between the tokens of one answer, after its first token",
            TOKEN_BUCKETS,
        )
        self.end_to_end = histogram(
            "vllm:e2e_request_latency_seconds",
            "Time from the arrival of a request to its last token",
            REQUEST_BUCKETS,
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
        ready = Gauge(
            "llmendpoint:ready", "1 while GET /ready answers 200", ["model_name"], registry=registry
        )
        ready.labels(model).set_function(lambda: float(engine.state == "ready" and engine.failure() is None))
        for reason in ("stop", "length", "abort"):  # so that a rate() sees each from the start
            self._finished.labels(model, reason)

    def count_finished(self, reason: str) -> None:
        self._finished.labels(self._model, reason).inc()

    def count_refused(self, status: int) -> None:
        self._refused.labels(self._model, str(status)).inc()

    def page(self) -> bytes:
        return generate_latest(self._registry)
