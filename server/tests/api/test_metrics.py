"""docs/reference/metrics.md: what the engine computes with, and times between tokens as prometheus_client would show them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from llmendpoint_server import protocol
from llmendpoint_server.api.metrics import TOKEN_BUCKETS, Metrics, TokenTimes

NAME, HELP = "vllm:inter_token_latency_seconds", "Time between two tokens of an answer"


@given(st.lists(st.tuples(st.sampled_from([0.0, *TOKEN_BUCKETS, 0.0123, 10.5, 1e6]), st.integers(1, 4))))
def test_the_histogram_of_token_times_is_shown_as_prometheus_client_shows_its_own(
    observed: list[tuple[float, int]],
) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    times = TokenTimes('a "model"')
    ours.register(times)
    histogram = Histogram(NAME, HELP, ["model_name"], buckets=TOKEN_BUCKETS, registry=theirs)
    child = histogram.labels('a "model"')
    for seconds, count in observed:
        times.observe(seconds, count)
        for _ in range(count):
            child.observe(seconds)
    assert lines(ours) == lines(theirs)


def lines(registry: CollectorRegistry) -> list[str]:
    """All but when it was made, and the sum, whose last digits depend on the order of additions."""
    shown = generate_latest(registry).decode().splitlines()
    return [line for line in shown if "_created" not in line and "_sum" not in line]


def test_the_metrics_say_what_computes_once_the_model_is_loaded() -> None:
    engine = SimpleNamespace(stats=protocol.Stats(), loaded=None, state="loading", failure=lambda: None)
    metrics = Metrics(cast(Any, engine), "chat")
    assert b"llmendpoint:engine_info{" not in metrics.page()
    engine.loaded = protocol.Loaded(
        "llama", 512, 8, 64, 32000, (2,), "cpu", "bfloat16", 100, 16, 1.5, "inplace", "avx512_bf16", "int8"
    )
    [line] = [
        one for one in metrics.page().decode().splitlines() if one.startswith("llmendpoint:engine_info")
    ]
    assert line == (
        'llmendpoint:engine_info{attention="inplace",device="cpu",dtype="bfloat16",kernels="avx512_bf16",'
        'model_name="chat",quantization="int8"} 1.0'
    )
