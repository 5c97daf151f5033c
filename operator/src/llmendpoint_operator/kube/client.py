"""A thin JSON client of the API server with one keep-alive pool. The kubernetes package supplies the
credentials.

Its generated client parses every object into classes; at 1,000 endpoints that costs more than the calls
themselves.
"""

from __future__ import annotations

import inspect
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import Configuration

from ..core.names import MANAGER
from ..errors import ApiError, LeadershipLost, api_error
from .resources import EVENTS, Resource

Json = dict[str, Any]

CALL_TIMEOUT_S = 30
BROKEN = (TimeoutError, aiohttp.ClientError, ValueError)
"""Errors of a call without a complete answer."""
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Credentials:
    """How to reach the API server."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        self.configuration = configuration
        self.namespace = namespace

    @classmethod
    async def load(cls, kubeconfig: str | None) -> Credentials:
        """From `kubeconfig`, else the pod's service account, else $KUBECONFIG or ~/.kube/config."""
        configuration = Configuration()
        namespace = _own_namespace()
        if kubeconfig is None and namespace is not None:
            kube_config.load_incluster_config(client_configuration=configuration)
            return cls(configuration, namespace)
        await kube_config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        _, context = kube_config.list_kube_config_contexts(config_file=kubeconfig)
        return cls(configuration, context.get("context", {}).get("namespace") or "default")

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return str(self.configuration.host)

    def ssl_context(self) -> ssl.SSLContext:
        """TLS context with the CA and the client certificate."""
        context = ssl.create_default_context(cafile=self.configuration.ssl_ca_cert)
        if not self.configuration.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.configuration.cert_file:
            context.load_cert_chain(self.configuration.cert_file, self.configuration.key_file)
        return context

    async def token(self) -> str | None:
        """The present bearer token. Service-account tokens are renewed on disk."""
        found = self.configuration.get_api_key_with_prefix("BearerToken")
        if inspect.isawaitable(found):
            found = await found
        return str(found).split(" ", 1)[-1] if found else None


class KubeApi:
    """Calls of the API server. Each raises an ApiError on failure."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self.may_write: Callable[[], bool] = lambda: True
        """Whether children and status may be written: only while the Lease is held."""

    async def __aenter__(self) -> KubeApi:
        connector = aiohttp.TCPConnector(ssl=self._credentials.ssl_context(), limit=64)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def list(
        self, resource: Resource, namespace: str | None, selector: str = "", field: str = ""
    ) -> Json:
        """The collection with its resourceVersion, selected by labels or by a field."""
        selectors = {"labelSelector": selector, "fieldSelector": field}
        query = {name: value for name, value in selectors.items() if value}
        return await self._call("GET", resource.path(namespace), query)

    async def events_of_pod(self, namespace: str, pod: str) -> tuple[Json, ...]:
        """Events about one pod, at most 100."""
        query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={pod}", "limit": "100"}
        found = await self._call("GET", EVENTS.path(namespace), query)
        return tuple(found.get("items") or ())

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        """One object; raises NotFound."""
        return await self._call("GET", resource.path(namespace, name))

    async def create(self, resource: Resource, namespace: str | None, body: Json) -> Json:
        """Create an object; raises Conflict if its name is taken."""
        return await self._call("POST", resource.path(namespace), {"fieldManager": MANAGER}, body)

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Json, subresource: str | None = None
    ) -> Json:
        """Replace an object or a subresource. Raises Conflict if its resourceVersion is outdated."""
        path = resource.path(namespace, name, subresource)
        return await self._call("PUT", path, {"fieldManager": MANAGER}, body)

    async def apply(self, resource: Resource, body: Json) -> Json:
        """Server-side apply by the operator's field manager. A uid in `body` restricts it to that object."""
        self.check_lease()
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": MANAGER, "force": "true"}
        return await self._call("PATCH", path, query, body, "application/apply-patch+yaml")

    async def merge(self, resource: Resource, namespace: str | None, name: str, change: Json) -> Json:
        """Change some fields of an object (JSON merge patch)."""
        query, kind = {"fieldManager": MANAGER}, "application/merge-patch+json"
        return await self._call("PATCH", resource.path(namespace, name), query, change, kind)

    async def delete(self, resource: Resource, namespace: str | None, name: str, uid: str) -> Json:
        """Delete the object with this uid and, in the background, its dependents. Raises Conflict if another
        object has the name now."""
        self.check_lease()
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        return await self._call("DELETE", resource.path(namespace, name), body=options)

    async def watch(
        self, resource: Resource, namespace: str | None, selector: str, version: str, timeout_s: int
    ) -> AsyncIterator[Json]:
        """Watch events after `version`, with bookmarks. The API server ends the watch after `timeout_s`."""
        query = {
            "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version,
            "timeoutSeconds": str(timeout_s), **({"labelSelector": selector} if selector else {}),
        }  # fmt: skip
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CALL_TIMEOUT_S, sock_read=timeout_s + CALL_TIMEOUT_S
        )
        response = await self._open("GET", resource.path(namespace), query, None, "", timeout)
        async with response:
            buffer = b""
            async for chunk in response.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)

    def check_lease(self) -> None:
        """Raises LeadershipLost if children and status may not be written now."""
        if not self.may_write():
            raise LeadershipLost("a write was held back: the lease was not renewed in time")

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        kind: str = "application/json",
    ) -> Json:
        response = await self._open(
            method, path, query or {}, body, kind, aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
        )
        try:
            async with response:
                found: Json = json.loads(await response.read())
        except BROKEN as error:
            raise ApiError(0, f"broken answer: {error!r}", f"{method} {path}") from error
        return found

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None,
        kind: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        assert self._session is not None, "use KubeApi as a context manager"
        headers = {"Accept": "application/json", "Content-Type": kind}
        if token := await self._credentials.token():
            headers["Authorization"] = f"Bearer {token}"
        data = as_go_writes(body) if body is not None else None
        url = self._credentials.host + path
        try:
            response = await self._session.request(
                method, url, params=query, data=data, headers=headers, timeout=timeout
            )
            if response.status < 300:
                return response
            async with response:
                said = await response.text()
        except BROKEN as error:
            raise ApiError(0, f"no answer: {error!r}", f"{method} {path}") from error
        raise api_error(response.status, _message(said), f"{method} {path}")


def as_go_writes(body: Json) -> str:
    """JSON exactly as the API server encodes it. The API server stores a ControllerRevision's data as
    received and compares it with its own encoding. After any other encoding, it would refuse every later
    change as a change of the data."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _own_namespace() -> str | None:
    """The pod's namespace; None outside a cluster."""
    return SERVICE_ACCOUNT_NAMESPACE.read_text().strip() if SERVICE_ACCOUNT_NAMESPACE.exists() else None


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return text.strip()[:500]
