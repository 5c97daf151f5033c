"""The listeners and their routes, which Envoy gets from the picker like clusters: they change while Envoy runs.

What they depend on is known where Envoy starts: its address, its share of the machine. Envoy tells it in its node's
metadata. Routes change without a trace for connections. A changed listener closes the connections of the one before it
when Envoy's drain time is over, so what changes often belongs into routes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from llmendpoint_gateway.core.envoy.bounds import Share
from llmendpoint_gateway.core.envoy.listener import INNER_NAME, NAME, make_inner_listener, make_listener
from llmendpoint_gateway.core.envoy.resources import Resource
from llmendpoint_gateway.core.envoy.routes import make_routes
from llmendpoint_gateway.core.envoy.xds import LISTENER, ROUTES

FRONT = "front"  # in the node's metadata


@dataclass(frozen=True, slots=True)
class Front:
    """`host`: the address to listen on. `inner`: the socket of the inner listener. `batch_service`: there is one. `with_keys`: the
    picker asks for API keys."""

    host: str
    port: int
    inner: str
    share: Share
    batch_service: bool = False
    with_keys: bool = False

    def as_metadata(self) -> Resource:
        return asdict(self)


def read_front(metadata: Mapping[str, Any]) -> Front | None:
    """What an Envoy tells of itself; None: it has listeners of its own. Metadata has no whole numbers, only floats."""
    told: Any = metadata.get(FRONT)
    if told is None:
        return None
    share = Share(**{name: int(value) for name, value in told["share"].items()})
    return Front(
        told["host"],
        int(told["port"]),
        told["inner"],
        share,
        told["batch_service"],
        told.get("with_keys", False),
    )


def make_front(front: Front) -> Mapping[str, Mapping[str, Resource]]:
    """Type URL -> name -> resource."""
    return {
        LISTENER: {
            NAME: make_listener(front.host, front.port, front.share, front.batch_service, front.with_keys),
            INNER_NAME: make_inner_listener(front.inner, front.with_keys),
        },
        ROUTES: {
            NAME: make_routes(
                NAME, large_apart=True, batch_service=front.batch_service, with_keys=front.with_keys
            ),
            INNER_NAME: make_routes(INNER_NAME, large_apart=False),
        },
    }
