"""Small pods for the cluster's own tests, from the base image."""

from typing import Any

from tests.cluster.baseimage import BASE

HTTP_PORT = 8000


def web_pod(name: str, *, accelerators: int = 0, host_port: int | None = None) -> dict[str, Any]:
    """A pod that serves its own name over HTTP, Ready once it does."""
    port: dict[str, Any] = {"name": "http", "containerPort": HTTP_PORT}
    if host_port:
        port |= {"hostPort": host_port, "hostIP": "127.0.0.1"}
    script = f"cd /tmp && echo {name} > name && echo serving && exec python3 -m http.server {HTTP_PORT}"
    container: dict[str, Any] = {
        "name": "web",
        "image": BASE.name,
        "command": ["sh", "-c", script],
        "ports": [port],
        "readinessProbe": {"httpGet": {"path": "/name", "port": "http"}, "periodSeconds": 1},
        "resources": {"limits": {"nvidia.com/gpu": str(accelerators)}} if accelerators else {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def service(name: str) -> dict[str, Any]:
    """A Service for the pods that are labelled with its name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http"}]},
    }


FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
CONNECT = "import socket, sys; s = socket.socket(); s.settimeout(2); print(s.connect_ex((sys.argv[1], int(sys.argv[2]))))"
