"""The embedded Kubernetes: a real one from package registries alone. `python -m tests.cluster --help`.

from tests.cluster import start_control_plane, start_node
"""

from tests.cluster.api import Cluster, wait_for
from tests.cluster.lifecycle import connect, start_control_plane, start_node

__all__ = ["Cluster", "connect", "start_control_plane", "start_node", "wait_for"]
