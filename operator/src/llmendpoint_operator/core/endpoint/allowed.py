"""Which hosts users may name: hubs and object stores that models are downloaded from, and judges.

A user who may write an LLMEndpoint may have no access to the namespace's Secrets or to hosts that the
operator reaches. So each host is normalized and compared with a list. A text that two parsers could read
differently is no valid URL here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from llmendpoint_fit.core.hub import PUBLIC_HUB

from ...api import EnvVar, LLMRuntimeSpec, PodInputs
from ..models.files import is_downloaded, needs_image
from .causes import Cause

HUB_VARIABLES = frozenset({"HF_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
"""Variables with the host to which the downloader sends its credentials."""
REGION_VARIABLES = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION"})
"""Variables that become part of the object store's host name."""
_ROUTES = re.compile(r"(?i)\w+_proxy|ssl_cert_(file|dir)|requests_ca_bundle|curl_ca_bundle|aws_ca_bundle")
"""Variables that set the downloader's proxy and the certificates that it trusts."""

_PORTS = {"http": 80, "https": 443}
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/[a-z0-9_~-][a-z0-9._~-]*)*)/?",
    re.IGNORECASE,
)
_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_REFERENCE = re.compile(
    r"(?P<namespace>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
)


class Base(NamedTuple):
    """A normalized base URL: host in lower case, port always given, path without a trailing `/`."""

    scheme: str
    host: str
    port: int
    path: str


def parse_base(text: str) -> Base | None:
    """`http(s)://host[:port][/path]`; None for anything else, such as user info, a query, or a path with `..`."""
    found = _URL.fullmatch(text)
    if found is None:
        return None
    scheme = found["scheme"].lower()
    port = int(found["port"] or _PORTS[scheme])
    return Base(scheme, found["host"].lower(), port, found["path"]) if port <= 65535 else None


@dataclass(frozen=True, slots=True)
class Allowed:
    """`hubs`: base URLs. `judge_hosts`: `host` (on its scheme's default port) or `host:port`.
    `judge_namespaces`: namespaces whose endpoints may judge revisions of other namespaces, `*` for all."""

    hubs: tuple[str, ...] = (PUBLIC_HUB,)
    judge_hosts: tuple[str, ...] = ()
    judge_namespaces: tuple[str, ...] = ()

    def hub(self, url: str) -> bool:
        """Whether models may be downloaded from this URL with the namespace's credentials."""
        base = parse_base(url)
        return base is not None and any(base == parse_base(allowed) for allowed in self.hubs)

    def judge_host(self, base: Base) -> bool:
        """Whether the operator may call this host as a judge."""
        names = {f"{base.host}:{base.port}"} | ({base.host} if base.port == _PORTS[base.scheme] else set())
        return not names.isdisjoint(host.lower() for host in self.judge_hosts)


BY_DEFAULT = Allowed()


def downloader_variables(runtime: LLMRuntimeSpec, inputs: PodInputs) -> tuple[EnvVar, ...]:
    """The environment of llmendpoint-model: the runtime's variables, and from `spec.runtime.env` the store's
    region and the hubs that `environment_refused` accepted. The other variables are for the engine, which
    never gets the credentials."""
    names = HUB_VARIABLES | REGION_VARIABLES
    return (*runtime.env, *(item for item in inputs.runtime.env if item.name in names and item.value))


def environment_refused(inputs: PodInputs, allowed: Allowed) -> Cause | None:
    """Why the model must not be downloaded with this environment; None if it may be."""
    if not is_downloaded(inputs.model) or not needs_image(inputs.model):
        return None
    if "$(" in inputs.model.source:
        said = "the kubelet would replace $(...) by a variable of the downloader, such as its credentials"
        return _refused(f"spec.model.source must not contain '$(': {said}; rename the folder")
    for item in inputs.runtime.env:
        where = f"spec.runtime.env {item.name}"
        if item.name in HUB_VARIABLES and item.value and not allowed.hub(item.value):
            hint = f"allowed are {_listed(allowed.hubs)} (hub.allowed of the chart)"
            return _refused(f"{where}: models are not downloaded from {item.value!r}; {hint}")
        if item.name in REGION_VARIABLES and item.value and not _REGION.fullmatch(item.value):
            return _refused(f"{where}: {item.value!r} is not a region; write for example eu-north-1")
        if _ROUTES.fullmatch(item.name):
            hint = f"leave it out, or let an administrator set it in spec.env of LLMRuntime {inputs.runtime.name}"
            return _refused(f"{where}: only the platform sets proxies and certificates of downloads; {hint}")
    return None


def judge_refused(judge: str, namespace: str, allowed: Allowed) -> str | None:
    """Why `judge` may not judge an endpoint of `namespace`; None if it may."""
    if "://" in judge:
        base = parse_base(judge)
        if base is not None and allowed.judge_host(base):
            return None
        hosts = _listed(allowed.judge_hosts) or "none"
        return (
            f"it is not a host that the platform allows; allowed: {hosts} (judge.allowedHosts of the chart)"
        )
    found = _REFERENCE.fullmatch(judge)
    if found is None:
        return "write <namespace>/<name> of an LLMEndpoint, or the base URL of an OpenAI API"
    if found["namespace"] == namespace or not {found["namespace"], "*"}.isdisjoint(allowed.judge_namespaces):
        return None
    others = _listed(allowed.judge_namespaces)
    known = f"namespace {namespace}" + (f" and {others}" if others else "")
    return f"only endpoints of {known} may judge here (judge.allowedNamespaces of the chart)"


def _refused(message: str) -> Cause:
    return Cause("HubNotAllowed", message, permanent=True)


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items)
