"""Envoy's bootstrap: its bounds, the two connections to the picker, and ADS for the rest."""

from llmendpoint_gateway.core.envoy.batches import make_batch_cluster
from llmendpoint_gateway.core.envoy.bounds import MAX_RESETS, Share
from llmendpoint_gateway.core.envoy.front import FRONT, Front
from llmendpoint_gateway.core.envoy.listener import (
    INNER_STATS_NAME,
    STATS_NAME,
)
from llmendpoint_gateway.core.envoy.overload import make_allocator, make_overload_manager
from llmendpoint_gateway.core.envoy.request_stats import STATS_PREFIX as REQUESTS_PREFIX
from llmendpoint_gateway.core.envoy.request_stats import make_buckets
from llmendpoint_gateway.core.envoy.resources import (
    ADS,
    CONTROL_CLUSTER,
    LARGE_CLUSTER,
    PICKER_CLUSTER,
    Resource,
    make_inner_cluster,
    make_picker_cluster,
)
from llmendpoint_gateway.core.envoy.upstream_logs import STATS_PREFIX

LIMIT = "connections"  # in the node's metadata: the most connections
# Envoy keeps no other statistics: it has over a hundred counters for each cluster.
KEPT_STATS = (
    f"{STATS_PREFIX}.",
    f"{REQUESTS_PREFIX}.",
    f"http.{STATS_NAME}.",
    f"http.{INNER_STATS_NAME}.",
    f"cluster.{CONTROL_CLUSTER}.",
    f"cluster.{PICKER_CLUSTER}.",
    f"cluster.{LARGE_CLUSTER}.",
    "cluster_manager.",
    "envoy.overload_actions.",
    "http1.",
    "http2.",
    "listener.",
    "overload.",
    "server.",
)


def make_bootstrap(
    control: str,
    decisions: str,
    inner: str,
    open_share: str | None,
    host: str,
    port: int,
    admin_socket: str,
    instance: str,
    share: Share,
    batch_service: str | None = None,
    with_keys: bool = False,
) -> Resource:
    """`control` and `decisions` are the picker's sockets; `inner` is Envoy's own. `open_share` is a file that the
    picker writes (serve/envoy/connections.py), or None if Envoy cannot watch it. `host` is the address to listen on.

    `instance` is new at each start, because Envoy's counters then begin at 0. The admin interface is on a Unix socket:
    whoever reaches it can stop Envoy. `batch_service`: its host and port; None if there is none. `with_keys`: the picker
    asks for API keys.
    """
    front = Front(host, port, inner, share, batch_service is not None, with_keys)
    metadata = {LIMIT: share.connections, FRONT: front.as_metadata()}
    return {
        "node": {"id": instance, "cluster": "gateway", "metadata": metadata},
        "admin": {"address": {"pipe": {"path": admin_socket}}},
        "overload_manager": make_overload_manager(share, open_share),
        "memory_allocator_manager": make_allocator(),
        "stats_config": {
            "stats_matcher": {"inclusion_list": {"patterns": [{"prefix": prefix} for prefix in KEPT_STATS]}},
            "histogram_bucket_settings": make_buckets(),
        },
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
        "layered_runtime": {"layers": [{"name": "bounds", "static_layer": _runtime()}]},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [
                    {
                        "envoy_grpc": {
                            "cluster_name": CONTROL_CLUSTER,
                            # By default Envoy waits up to 6.8 s after a restart of the picker.
                            "retry_policy": {
                                "retry_back_off": {"base_interval": "0.1s", "max_interval": "0.5s"}
                            },
                        }
                    }
                ],
            },
            # No timeout: Envoy asks for listeners only after it received the first clusters.
            "cds_config": {**ADS, "initial_fetch_timeout": "0s"},
            "lds_config": {**ADS, "initial_fetch_timeout": "0s"},
        },
        "static_resources": {
            "clusters": [
                make_picker_cluster(CONTROL_CLUSTER, control),
                make_picker_cluster(PICKER_CLUSTER, decisions, share.connections),
                make_inner_cluster(inner),
                *([make_batch_cluster(batch_service)] if batch_service else []),
            ],
        },
    }


def _runtime() -> Resource:
    return {
        "overload.premature_reset_total_stream_count": MAX_RESETS,
        "overload.premature_reset_min_stream_lifetime_seconds": 1,
        # A connection with many requests holds a worker for one request at a time.
        "http.max_requests_per_io_cycle": 1,
    }
