"""docs/concepts/gateway.md: Envoy's workers, heap and connections follow its container's limits, whatever the node has."""

import json
from pathlib import Path

import pytest

from gateway.tests.harness import Gateway
from gateway.tests.uploads import MIB
from llmendpoint_gateway.core.envoy.bootstrap import make_bootstrap
from llmendpoint_gateway.core.envoy.bounds import (
    DEFAULT_MEMORY_BYTES,
    DEFAULT_WORKERS,
    KEPT_BYTES,
    MAX_CONNECTIONS,
    REQUEST_BYTES,
    RESET_FROM,
    make_share,
)
from llmendpoint_gateway.core.envoy.front import Front, make_front
from llmendpoint_gateway.core.envoy.resources import Resource, make_cluster
from llmendpoint_gateway.core.envoy.xds import LISTENER, ROUTES
from llmendpoint_gateway.serve.envoy.container import cpu_limit, memory_limit


def test_workers_follow_the_cpu_limit_and_never_the_cores_of_the_node() -> None:
    workers = [make_share(None, limit, 10**6).workers for limit in (0.1, 1, 1.5, 4, 64)]
    assert workers == [1, 1, 2, 4, 64]
    assert make_share(None, None, 10**6).workers == DEFAULT_WORKERS


def test_the_heap_leaves_room_in_the_memory_limit_and_connections_in_the_open_files() -> None:
    share = make_share(512 * MIB, None, 10**6)
    assert 0.7 < share.heap_bytes / (512 * MIB) < 0.9
    assert make_share(None, None, 10**6).memory_bytes == DEFAULT_MEMORY_BYTES
    assert make_share(None, None, 1024).connections == 341
    assert 4000 < make_share(None, None, 10**6).connections < make_share(2048 * MIB, None, 10**6).connections
    assert make_share(1280 * MIB, None, 10**6).connections >= 5000, "the chart's limit"
    assert make_share(4096 * MIB, None, 10**6).connections == MAX_CONNECTIONS


def limit_of(config: Resource) -> int:
    """Of the requests under way."""
    controller = config.get("extension_config", {"typed_config": config})["typed_config"][
        "gradient_controller_config"
    ]
    most: int = controller["concurrency_limit_params"]["max_concurrency_limit"]
    assert controller["min_rtt_calc_params"]["min_concurrency"] == most, "it adapts"
    return most


@pytest.mark.parametrize("memory", [128 * MIB, 1024 * MIB, 8192 * MIB])
def test_what_all_requests_hold_that_nothing_takes_back_fits_the_heap(memory: int) -> None:
    """By the configuration itself: there are no more requests than connections. On HTTP/2 the overload manager resets what
    holds more than the smallest bucket."""
    share = make_share(memory, None, 10**6)
    bootstrap = make_bootstrap("c", "d", "i", "o", "0.0.0.0", 8080, "a", "i-1", share)
    front = make_front(Front("0.0.0.0", 8080, "i", share))
    outer = front[LISTENER]["openai"]
    manager = outer["filter_chains"][0]["filters"][0]["typed_config"]
    headers = manager["max_request_headers_kb"] << 10
    (host,) = front[ROUTES]["openai"]["virtual_hosts"]
    large = next(r["match"]["headers"][0] for r in host["routes"] if "range_match" in str(r["match"]))
    body = large["range_match"]["start"] - 1
    answer = outer["per_connection_buffer_limit_bytes"]
    engine = make_cluster("a/chat/r1")["per_connection_buffer_limit_bytes"]
    assert share.connections * (REQUEST_BYTES + 2 * headers + body + answer + engine) <= share.heap_bytes
    power = bootstrap["overload_manager"]["buffer_factory_config"]["minimum_account_to_track_power_of_two"]
    assert 1 << power <= body
    over_http2, all_ = (limit_of(filter_["typed_config"]) for filter_ in manager["http_filters"][1:3])
    assert (over_http2, all_) == (share.connections // 2, share.connections)
    clusters = {cluster["name"]: cluster for cluster in bootstrap["static_resources"]["clusters"]}
    (limits,) = clusters["picker"]["circuit_breakers"]["thresholds"]
    assert limits["max_requests"] == share.connections  # also of those whose answers nobody reads
    # Large bodies that are kept, and the copies of them on their way: on HTTP/2 alone, hence never beyond the heap.
    assert RESET_FROM * make_share(None, None, 10**6).heap_bytes >= 2 * KEPT_BYTES


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "1073741824"}, 1.5, 2**30),
        ({"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        (
            {
                "cpu/cpu.cfs_quota_us": "400000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "268435456",
            },
            4.0,
            2**28,
        ),
        (
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            None,
            None,
        ),
        ({}, None, None),
    ],
)
def test_limits_are_read_from_control_groups_of_both_versions(
    tmp_path: Path, files: dict[str, str], cpus: float | None, memory: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert (cpu_limit(tmp_path), memory_limit(tmp_path)) == (cpus, memory)


def test_envoy_runs_as_many_workers_as_it_was_given(gateway: Gateway) -> None:
    options = json.loads(gateway.admin("/server_info"))["command_line_options"]
    assert options["concurrency"] == make_share(None, cpu_limit(), 10**6).workers
