"""How the picker reaches the API server: the pod's service account, or a kubeconfig outside a cluster.

This module replaces the kubernetes client. A restarted picker must be ready within the second that its clients wait
before they try again. Importing that client takes 1.2 s and 51 MiB, and the picker needs two GETs only.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from llmendpoint_gateway.errors import NoAccess

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """`ssl` is None for plain HTTP. `token` is called for each request, because a mounted token changes about every
    hour."""

    server: str
    ssl: ssl.SSLContext | None
    token: Callable[[], str | None]

    def headers(self) -> dict[str, str]:
        token = self.token()
        return {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})


def in_cluster(environment: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Access:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (folder / "token").exists():
        raise NoAccess(
            f"not in a cluster (no KUBERNETES_SERVICE_HOST, or no token in {folder}); outside one use --kubeconfig PATH"
        )
    host = f"[{host}]" if ":" in host else host
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    return Access(f"https://{host}:{port}", context, lambda: (folder / "token").read_text().strip())


def from_kubeconfig(path: Path) -> Access:
    """Read the current context. Supports users with a token, a token file or a client certificate."""
    try:
        document = yaml.safe_load(path.read_text())
        context = _named(document, "contexts", document["current-context"], "context")
        cluster = _named(document, "clusters", context["cluster"], "cluster")
        user = _named(document, "users", context["user"], "user")
        server = cluster["server"].rstrip("/")
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration) as error:
        raise NoAccess(f"{path} is not a kubeconfig with a current context: {error!r}") from None
    if "exec" in user or "auth-provider" in user:
        raise NoAccess(
            f"the user of {path} gets credentials from a plugin, which the gateway does not run; use a kubeconfig with "
            "a token or a client certificate (kubectl create token NAME)"
        )
    return Access(server, _tls(server, cluster, user, path.parent), _token(user, path.parent))


def _named(document: Mapping[str, Any], section: str, name: str, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(item[kind] for item in document[section] if item["name"] == name)
    return found or {}


def _token(user: Mapping[str, Any], folder: Path) -> Callable[[], str | None]:
    if file := user.get("tokenFile"):
        return lambda: (folder / file).read_text().strip()
    token: str | None = user.get("token")
    return lambda: token


def _tls(
    server: str, cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path
) -> ssl.SSLContext | None:
    if not server.startswith("https://"):
        return None
    authority = _content(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate", folder), _content(user, "client-key", folder)
    if certificate and key:
        # Python's ssl loads key pairs from files only. This file is readable by this user only and is deleted at once.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(section: Mapping[str, Any], field: str, folder: Path) -> bytes | None:
    if data := section.get(f"{field}-data"):
        return base64.b64decode(data)
    file: str | None = section.get(field)
    return (folder / file).read_bytes() if file else None
