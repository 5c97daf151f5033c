"""Envoy's overload manager: what Envoy gives up, and in which order, before it runs out of memory."""

from typing import Any

from llmendpoint_gateway.core.envoy.bounds import (
    LEAST_TIMEOUT,
    LOOK_EVERY,
    RESET_ALL,
    RESET_FROM,
    RESET_POWER,
    SHORTER_FROM,
    SHORTEST_AT,
    Share,
)
from llmendpoint_gateway.core.envoy.resources import Resource, extension

HEAP = "envoy.resource_monitors.fixed_heap"
CONNECTIONS = "envoy.resource_monitors.global_downstream_max_connections"
OPEN_SHARE = "envoy.resource_monitors.injected_resource"
RELEASE_BYTES = 64 << 20  # per second, of freed memory; without it the heap never shrinks


def make_overload_manager(share: Share, open_share: str | None) -> Resource:
    """Envoy first resets the largest requests, then closes idle connections. At the very end it refuses new requests
    and connections.

    `open_share`: the file with the share of open connections. None: only the heap shortens timeouts. The monitor that
    counts connections triggers nothing.
    """
    return {
        "refresh_interval": LOOK_EVERY,
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": RESET_POWER},
        "resource_monitors": [
            _monitor(HEAP, "fixed_heap.v3.FixedHeapConfig", max_heap_size_bytes=share.heap_bytes),
            _monitor(
                CONNECTIONS,
                "downstream_connections.v3.DownstreamConnectionsConfig",
                max_active_downstream_connections=share.connections,
            ),
            *([_open_share(open_share)] if open_share else []),
        ],
        "actions": [
            _action("shrink_heap", {"threshold": {"value": RESET_FROM}}),
            _action("reset_high_memory_stream", _scaled(RESET_FROM, RESET_ALL)),
            _shorter_timeouts(by_connections=open_share is not None),
            _action("stop_accepting_requests", {"threshold": {"value": 0.95}}),
            _action("stop_accepting_connections", {"threshold": {"value": 0.98}}),
        ],
    }


def make_allocator() -> Resource:
    return {"bytes_to_release": RELEASE_BYTES, "memory_release_interval": "1s"}


def _monitor(name: str, message: str, **config: Any) -> Resource:
    return extension(name, f"envoy.extensions.resource_monitors.{message}", **config)


def _open_share(file: str) -> Resource:
    return _monitor(OPEN_SHARE, "injected_resource.v3.InjectedResourceConfig", filename=file)


def _action(name: str, trigger: Resource) -> Resource:
    return {"name": f"envoy.overload_actions.{name}", "triggers": [{"name": HEAP, **trigger}]}


def _scaled(start: float, end: float) -> Resource:
    return {"scaled": {"scaling_threshold": start, "saturation_threshold": end}}


def _shorter_timeouts(by_connections: bool) -> Resource:
    """Shorten the timeouts of connections without a request, and of finished answers that wait for their readers. The
    heap or the number of connections decides, whichever is closer to its limit."""
    timers = ("HTTP_DOWNSTREAM_CONNECTION_IDLE", "HTTP_DOWNSTREAM_STREAM_FLUSH")
    action = _action("reduce_timeouts", _scaled(RESET_ALL, 0.95))
    if by_connections:
        action["triggers"].append({"name": OPEN_SHARE, **_scaled(SHORTER_FROM, SHORTEST_AT)})
    action["typed_config"] = {
        "@type": "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
        "timer_scale_factors": [{"timer": timer, "min_timeout": LEAST_TIMEOUT} for timer in timers],
    }
    return action
