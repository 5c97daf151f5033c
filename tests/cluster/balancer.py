"""A load balancer for the embedded node: a Service that answers on this machine's 127.0.0.1.

A cloud's controller makes a load balancer for such a Service and writes its address into the Service's status. Here that
address is 127.0.0.1, and kube-proxy does the rest: it shares the connections among the pods that are ready. Unlike host
ports, it lets several pods of one node be behind one port.
"""

import json

from tests.cluster.api import Cluster
from tests.cluster.instance import LOOPBACK


def answer_on_loopback(
    cluster: Cluster, name: str, namespace: str, selector: dict[str, str], *, port: int, target: int | str
) -> None:
    """Apply the Service; `target` is the pods' port, by number or by name."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": False,
            "selector": selector,
            "ports": [{"name": "http", "port": port, "targetPort": target}],
        },
    }
    cluster.apply(service)
    status = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": LOOPBACK}]}}})
    argv = ["patch", "service", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", status]
    cluster.kubectl(*argv)
