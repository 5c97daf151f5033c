"""What a rollout decides on and the caches do not hold: asked of gateways and pods, and of the API server what Events say
of pods that wait, by the leader alone.

It reports and decides nothing. Whatever is unreachable, malformed or slow is left out of the Evidence; nothing that a
pod answers may end a task here or hold up another endpoint.
"""

from .collector import Collector
from .demand import Demands
from .gateways import GATEWAY_SELECTOR, Gateways
from .pod_events import PodEvents
from .wire import Wire

__all__ = ["GATEWAY_SELECTOR", "Collector", "Demands", "Gateways", "PodEvents", "Wire"]
