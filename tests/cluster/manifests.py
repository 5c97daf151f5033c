"""What a fresh cluster holds beside Kubernetes' own: the components' roles, and the DNS Service of a node."""

from typing import Any

from tests.cluster.configuration import DNS_SERVICE_ADDRESS
from tests.cluster.instance import Instance

Manifest = dict[str, Any]


def component_roles() -> list[Manifest]:
    """RBAC that kubeadm would add: the API server's way to the kubelet, CoreDNS's reads."""
    group = "rbac.authorization.k8s.io"
    coredns_rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        _binding("kube-apiserver-kubelet-client", "system:kubelet-api-admin"),
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": coredns_rules,
        },
        _binding("system:coredns", "system:coredns"),
    ]


def _binding(user: str, role: str) -> Manifest:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"testbed:{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def dns_service(instance: Instance) -> list[Manifest]:
    """The DNS Service, with the CoreDNS process on the node's address behind it."""
    port = instance.ports.dns
    names = (("dns", "UDP"), ("dns-tcp", "TCP"))
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {
                "clusterIP": DNS_SERVICE_ADDRESS,
                "ports": [{"name": n, "port": 53, "protocol": p, "targetPort": port} for n, p in names],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [instance.address], "conditions": {"ready": True}}],
            "ports": [{"name": n, "port": port, "protocol": p} for n, p in names],
        },
    ]
