"""What each component of a node is told, as values: nothing here reads, writes or starts anything."""

from pathlib import Path
from typing import Any

from tests.cluster.configuration import DNS_SERVICE_ADDRESS, DOMAIN, NODE_POD_CIDR, POD_CIDR
from tests.cluster.instance import LOOPBACK, NODE_NAME, Instance


def kubelet(instance: Instance) -> list[str]:
    """The kubelet as the node's own identity."""
    return [
        str(instance.bin / "kubelet"),
        f"--config={instance.config / 'kubelet.yaml'}",
        f"--kubeconfig={instance.kubeconfig('kubelet')}",
        f"--root-dir={instance.folder / 'kubelet'}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={instance.address}",
    ]


def kubelet_configuration(instance: Instance, cgroup_root: str) -> dict[str, Any]:
    """Evictions near zero, since the disk and memory are the machine's; all else as in a real cluster."""
    pki = instance.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "containerRuntimeEndpoint": f"unix://{instance.containerd_socket}",
        "address": instance.address,
        "port": instance.ports.kubelet,
        "readOnlyPort": 0,
        "healthzBindAddress": LOOPBACK,
        "healthzPort": instance.ports.kubelet_health,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / "kubelet-serving.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet-serving.key"),
        "failSwapOn": False,
        "clusterDomain": DOMAIN,
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        # The machine's search domains and name servers are not the pods' business.
        "resolvConf": str(instance.config / "resolv.conf"),
        "podLogsDir": str(instance.folder / "pod-logs"),
        "volumePluginDir": str(instance.folder / "volume-plugins"),
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "registerNode": True,
        "makeIPTablesUtilChains": False,
    }


def containerd(instance: Instance, cni_plugins: Path) -> str:
    """containerd's own folders throughout: none of the machine's containerd is read or written."""
    folder = instance.folder
    return f"""version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{instance.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:dev"
  # Without CAP_SYS_RESOURCE runc dies of a lower score: "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  stream_server_address = "{LOOPBACK}"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins}"
    conf_dir = "{instance.config}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{instance.bin}/runc"
        SystemdCgroup = false
        Root = "{folder}/containerd/runc"
"""


def cni(instance: Instance) -> dict[str, Any]:
    """A routed pair of interfaces for each pod, no bridge and no masquerade; host ports answer on 127.0.0.1 alone.

    Routed, because on a bridge the way back from a Service depends on a setting of the kernel for all bridges.
    """
    ranges = [[{"subnet": NODE_POD_CIDR}]]
    return {
        "cniVersion": "0.4.0",
        "name": "llmendpoint",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": ranges,
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": str(instance.folder / "cni-addresses"),
                },
            },
            {
                "type": "portmap",
                "capabilities": {"portMappings": True},
                "conditionsV4": ["-d", LOOPBACK],
            },
        ],
    }


def kube_proxy_configuration(instance: Instance) -> dict[str, Any]:
    """iptables mode; node ports on the cluster's own address only."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(instance.kubeconfig("kube-proxy"))},
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": NODE_NAME,
        "bindAddress": instance.address,
        "healthzBindAddress": f"{LOOPBACK}:{instance.ports.proxy_health}",
        "metricsBindAddress": f"{LOOPBACK}:{instance.ports.proxy_metrics}",
        "nodePortAddresses": [f"{instance.address}/32"],
        # The machine's connection tracking is left as it is.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "0s", "localhostNodePorts": False},
    }


def corefile(instance: Instance) -> str:
    """Names of the cluster, and a quick no to all others: nothing is asked outside."""
    return f""".:{instance.ports.dns} {{
    bind {instance.address}
    errors
    ready {LOOPBACK}:{instance.ports.dns_ready}
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {instance.kubeconfig("coredns")}
        ttl 1
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""
