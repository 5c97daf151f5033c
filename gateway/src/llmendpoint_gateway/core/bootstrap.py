"""Envoy's bootstrap: the listener, the two ways to the picker, and ADS for the rest."""

from llmendpoint_gateway.core.listener import make_listener
from llmendpoint_gateway.core.resources import (
    CONTROL_CLUSTER,
    PICKER_CLUSTER,
    Resource,
    make_control_cluster,
)


def make_bootstrap(
    control: str, decisions: str, host: str, port: int, admin_socket: str, instance: str
) -> Resource:
    """`control` and `decisions` are the picker's sockets, `host` the address to listen on.

    `instance` is new at every start, when Envoy's counters begin anew.
    The admin interface is on a Unix socket: whoever reaches it may stop Envoy.
    """
    return {
        "node": {"id": instance, "cluster": "gateway"},
        "admin": {"address": {"pipe": {"path": admin_socket}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [
                    {
                        "envoy_grpc": {
                            "cluster_name": CONTROL_CLUSTER,
                            # The default waits up to 6.8 s after a restart of the picker.
                            "retry_policy": {
                                "retry_back_off": {"base_interval": "0.1s", "max_interval": "0.5s"}
                            },
                        }
                    }
                ],
            },
            # No timeout: Envoy listens once it holds the first clusters, never with none because it was early.
            "cds_config": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"},
        },
        "static_resources": {
            "clusters": [
                make_control_cluster(CONTROL_CLUSTER, control),
                make_control_cluster(PICKER_CLUSTER, decisions),
            ],
            "listeners": [make_listener(host, port)],
        },
    }
