"""What a rollout decides on and the API server does not know: asked of gateways and pods, by the leader alone.

It reports and decides nothing. Whatever is unreachable, malformed or slow is left out of the Evidence; nothing that a
pod answers may end a task here or hold up another endpoint.
"""

from .collector import Collector
from .demand import Demands
from .gateways import GATEWAY_SELECTOR, Gateways
from .wire import Wire

__all__ = ["GATEWAY_SELECTOR", "Collector", "Demands", "Gateways", "Wire"]
