"""What each component of the control plane is told, as values: nothing here reads, writes or starts anything."""

from typing import Any

from tests.cluster.certificates import FRONT_PROXY
from tests.cluster.instance import LOOPBACK, Instance

POD_CIDR = "10.244.0.0/16"
NODE_POD_CIDR = "10.244.0.0/24"
NODE_ADDRESS = "10.244.255.1"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
DOMAIN = "cluster.local"


def kubeconfig(instance: Instance, identity: str) -> dict[str, Any]:
    """A kubeconfig whose user is the certificate `identity`."""
    pki = instance.pki
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": instance.name,
                "cluster": {"server": instance.api_url, "certificate-authority": str(pki / "ca.crt")},
            }
        ],
        "users": [
            {
                "name": identity,
                "user": {
                    "client-certificate": str(pki / f"{identity}.crt"),
                    "client-key": str(pki / f"{identity}.key"),
                },
            }
        ],
        "contexts": [{"name": instance.name, "context": {"cluster": instance.name, "user": identity}}],
        "current-context": instance.name,
    }


def etcd(instance: Instance) -> list[str]:
    """etcd without fsync: the data is as short-lived as the cluster."""
    client = f"http://{LOOPBACK}:{instance.ports.etcd}"
    peer = f"http://{LOOPBACK}:{instance.ports.etcd_peer}"
    return [
        str(instance.bin / "etcd"),
        "--name=cluster",
        f"--data-dir={instance.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=cluster={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


STORAGE_ENVIRONMENT = {"GOGC": "400"}
"""Of etcd and the API server. Memory in place of time: on two cores that everything shares, their garbage collectors would
hold up one write in twenty."""


def kube_apiserver(instance: Instance) -> list[str]:
    """The API server on the cluster's address alone, with the authorization of a real cluster."""
    pki = instance.pki
    return [
        str(instance.bin / "kube-apiserver"),
        f"--etcd-servers=http://{LOOPBACK}:{instance.ports.etcd}",
        f"--bind-address={instance.address}",
        f"--secure-port={instance.ports.api}",
        f"--advertise-address={instance.address if instance.has_node else NODE_ADDRESS}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        # Servers of APIServices are told by whom they are asked, and believe it by this certificate.
        f"--requestheader-client-ca-file={pki / 'ca.crt'}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy.key'}",
        f"--audit-policy-file={instance.config / 'audit.yaml'}",
        f"--audit-log-path={instance.audit_log}",
        "--audit-log-maxsize=100",
        "--audit-log-maxbackup=1",
    ]


def audit_policy() -> dict[str, Any]:
    """What service accounts ask for, but for those of Kubernetes itself: by it a test knows which rights are used."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    }


def kube_controller_manager(instance: Instance) -> list[str]:
    """Every controller under a service account of its own, as in a real cluster."""
    return [
        str(instance.bin / "kube-controller-manager"),
        f"--kubeconfig={instance.kubeconfig('controller-manager')}",
        f"--authentication-kubeconfig={instance.kubeconfig('controller-manager')}",
        f"--authorization-kubeconfig={instance.kubeconfig('controller-manager')}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={instance.pki / 'sa.key'}",
        f"--root-ca-file={instance.pki / 'ca.crt'}",
        # The default of 20 calls/s spends seconds on the first service accounts.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={instance.ports.controller_manager}",
        "--leader-elect=false",
        # 15 s by default: a test of a HorizontalPodAutoscaler waits for several of them.
        "--horizontal-pod-autoscaler-sync-period=2s",
    ]


def kube_scheduler(instance: Instance) -> list[str]:
    """The scheduler under its own identity."""
    return [
        str(instance.bin / "kube-scheduler"),
        f"--kubeconfig={instance.kubeconfig('scheduler')}",
        f"--authentication-kubeconfig={instance.kubeconfig('scheduler')}",
        f"--authorization-kubeconfig={instance.kubeconfig('scheduler')}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={instance.ports.scheduler}",
        "--leader-elect=false",
    ]
