"""docs/reference/metrics.md: what the engine computes with, and histograms as prometheus_client would show them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from llmendpoint_server import protocol
from llmendpoint_server.api.histograms import TOKEN_BUCKETS, Distribution
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.record import Record, Times

NAME, HELP = "vllm:inter_token_latency_seconds", "Time between two tokens of an answer"


@given(st.lists(st.tuples(st.sampled_from([0.0, *TOKEN_BUCKETS, 0.0123, 10.5, 1e6]), st.integers(1, 4))))
def test_a_histogram_is_shown_as_prometheus_client_shows_its_own(
    observed: list[tuple[float, int]],
) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    times = Distribution(NAME, HELP, 'a "model"', TOKEN_BUCKETS)
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


def test_the_metrics_say_how_the_cache_is_made_once_the_model_is_loaded() -> None:
    engine = SimpleNamespace(stats=protocol.Stats(), loaded=None, state="loading", failure=lambda: None)
    metrics = Metrics(cast(Any, engine), "chat")
    assert b"vllm:cache_config_info{" not in metrics.page()
    engine.loaded = protocol.Loaded(
        "llama", 512, 8, 64, 32000, (2,), "cpu", "bfloat16", 100, 16, 1.5, prefix_caching=False
    )
    assert (
        'vllm:cache_config_info{block_size="16",cache_dtype="bfloat16",enable_prefix_caching="False",'
        'model_name="chat",num_gpu_blocks="100"} 1.0'
    ) in metrics.page().decode()


def test_a_request_without_an_end_or_without_a_token_is_in_no_histogram() -> None:
    engine = SimpleNamespace(stats=protocol.Stats(), loaded=None, state="ready", failure=lambda: None)
    metrics = Metrics(cast(Any, engine), "chat")
    times = Times(1.0, 2.0, 4.0, 8.0)
    for finish, known in (("abort", times), ("error", times), ("", None), ("stop", None)):
        metrics.observe(Record(finish=finish, times=known))
    assert value(metrics, "vllm:request_queue_time_seconds_count") == 0
    metrics.observe(
        Record(finish="length", times=times, prompt_tokens=7, output_tokens=30, answers=3, max_tokens=10)
    )
    sums = {
        "queue_time_seconds": 1, "prefill_time_seconds": 2, "decode_time_seconds": 4, "inference_time_seconds": 6,
        "prompt_tokens": 7, "generation_tokens": 30, "params_n": 3, "params_max_tokens": 10,
    }  # fmt: skip
    assert {name: value(metrics, f"vllm:request_{name}_sum") for name in sums} == sums


def value(metrics: Metrics, name: str) -> float:
    [line] = [one for one in metrics.page().decode().splitlines() if one.startswith(name + "{")]
    return float(line.rpartition(" ")[2])
