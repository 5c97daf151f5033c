"""How the API server is reached: the kubeconfig that kubectl would use.

The kubernetes package is not used: it takes 1.4 s to import, and a command of this program takes a fraction of that.
Users may have a token, a token file, a client certificate or an exec plugin.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import NoAccess

Section = Mapping[str, Any]

PLUGIN_TIMEOUT_S = 60
"""Seconds; enough for a plugin that opens a browser."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Access:
    """`server` has no trailing slash. `ssl` is None for plain HTTP. `namespace` is the context's."""

    server: str
    ssl: ssl.SSLContext | None
    server_name: str | None
    token: str | None
    namespace: str


def load(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """From `kubeconfig`, else $KUBECONFIG (of several files, the first that has a name wins), else ~/.kube/config,
    else, inside a pod, its ServiceAccount. Raises NoAccess."""
    paths = _paths(kubeconfig)
    merged = _merge([p for p in paths if p.exists()])
    if not merged and not kubeconfig and not context and (inside := _in_cluster()) is not None:
        return inside
    if not merged:
        tried = ", ".join(map(str, paths))
        raise NoAccess(f"no kubeconfig at {tried}; name one with --kubeconfig or $KUBECONFIG")
    name = context or merged["current-context"]
    if not name:
        raise NoAccess(
            f"the kubeconfig has no current context; name one with --context: {_names(merged, 'contexts')}"
        )
    chosen = _named(merged, "contexts", str(name))
    cluster = _named(merged, "clusters", str(chosen.get("cluster")))
    user = _named(merged, "users", str(chosen["user"])) if chosen.get("user") else {}
    try:
        return _access(cluster, user, str(chosen.get("namespace") or "default"))
    except (OSError, KeyError, ValueError) as error:
        raise NoAccess(f"context {name} cannot be used: {error!r}") from None


def _in_cluster() -> Access | None:
    """The ServiceAccount of the pod in which this program runs; None elsewhere."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (SERVICE_ACCOUNT / "token").exists():
        return None
    try:
        token, namespace = ((SERVICE_ACCOUNT / name).read_text().strip() for name in ("token", "namespace"))
        context = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    except (OSError, ValueError) as error:
        raise NoAccess(f"the ServiceAccount at {SERVICE_ACCOUNT} cannot be used: {error!r}") from None
    return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", context, None, token, namespace)


def _paths(kubeconfig: str | None) -> list[Path]:
    if kubeconfig:
        return [Path(kubeconfig)]
    listed = os.environ.get("KUBECONFIG", "")
    return [Path(p) for p in listed.split(os.pathsep) if p] or [Path.home() / ".kube" / "config"]


def _merge(paths: Sequence[Path]) -> dict[str, Any]:
    """All sections as {name: item}. Each item has the folder from which its relative paths start."""
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            document = yaml.load(path.read_text(), Loader=_LOADER) or {}
            merged.setdefault("current-context", None)
            merged["current-context"] = merged["current-context"] or document.get("current-context")
            for section in ("contexts", "clusters", "users"):
                known = merged.setdefault(section, {})
                for item in document.get(section) or ():
                    body = item.get(section.removesuffix("s")) or {}
                    known.setdefault(str(item["name"]), {**body, "folder": path.parent})
        except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
            raise NoAccess(f"{path} is not a kubeconfig: {error}") from None
    return merged


def _named(merged: Section, section: str, name: str) -> Section:
    try:
        found: Section = merged[section][name]
    except KeyError:
        raise NoAccess(
            f"the kubeconfig has no {section.removesuffix('s')} {name!r}; it has: {_names(merged, section)}"
        ) from None
    return found


def _names(merged: Section, section: str) -> str:
    return ", ".join(sorted(merged.get(section, {}))) or "none"


def _access(cluster: Section, user: Section, namespace: str) -> Access:
    if "auth-provider" in user:
        raise NoAccess(
            "the user has an auth-provider, which kubectl dropped in 1.26; use an exec plugin instead"
        )
    if "proxy-url" in cluster:
        raise NoAccess("the cluster has a proxy-url, which kubectl llm does not support")
    server = str(cluster["server"]).rstrip("/")
    if "exec" in user:
        user = {**user, **_run_plugin(user["exec"], cluster)}
    return Access(
        server, _tls(server, cluster, user), cluster.get("tls-server-name"), _token(user), namespace
    )


def _token(user: Section) -> str | None:
    if file := user.get("tokenFile"):
        return Path(user["folder"], file).read_text().strip()
    token: str | None = user.get("token")
    return token


def _tls(server: str, cluster: Section, user: Section) -> ssl.SSLContext | None:
    if not server.startswith("https://"):
        return None
    authority = _content(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate"), _content(user, "client-key")
    if certificate and key:
        # Python's ssl loads key pairs from files only. This file is readable by this user only and is deleted at once.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(section: Section, field: str) -> bytes | None:
    if data := section.get(f"{field}-data"):
        return base64.b64decode(data)
    file = section.get(field)
    return Path(section["folder"], file).read_bytes() if file else None


def _run_plugin(plugin: Section, cluster: Section) -> dict[str, Any]:
    """Credentials from an exec plugin (client.authentication.k8s.io), as fields of a kubeconfig's user."""
    command = [str(plugin["command"]), *map(str, plugin.get("args") or ())]
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        known = {"server": cluster["server"], "tls-server-name": cluster.get("tls-server-name"),
                 "certificate-authority-data": cluster.get("certificate-authority-data")}  # fmt: skip
        spec["cluster"] = {k: v for k, v in known.items() if v}
    about = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}
    given = {str(item["name"]): str(item["value"]) for item in plugin.get("env") or ()}
    environment = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(about)}
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, timeout=PLUGIN_TIMEOUT_S, check=True
        )
        status = json.loads(done.stdout)["status"]
    except FileNotFoundError:
        raise NoAccess(
            f"{plugin.get('installHint') or f'the credential plugin {command[0]} is not installed'}"
        ) from None
    except (subprocess.SubprocessError, OSError, ValueError, KeyError, TypeError) as error:
        raise NoAccess(f"the credential plugin {command[0]} gave no credentials: {error}") from None
    encoded = {
        f"{field}-data": base64.b64encode(status[key].encode()).decode()
        for field, key in (("client-certificate", "clientCertificateData"), ("client-key", "clientKeyData"))
        if status.get(key)
    }
    return {**encoded, **({"token": status["token"]} if status.get("token") else {})}
