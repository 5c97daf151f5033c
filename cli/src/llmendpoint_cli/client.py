"""The calls to the API server, over one kept connection. Objects are plain JSON."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from .core.cautions import Cautions
from .core.names import ENDPOINT_LABEL, GATEWAY_PORT, GATEWAY_SELECTOR, GROUP_PATH, REVISION_LABEL
from .core.presence import LEASE_NAME
from .errors import CliError, Conflict, NoAccess, NotFound, Refused, Unreachable
from .kubeconfig import Access

Json = dict[str, Any]
T = TypeVar("T")

TIMEOUT_S = 15
CACHED = {"resourceVersion": "0"}
"""Lists that are read again and again come from the API server's own cache, at no cost to etcd."""


class Client:
    """Reads endpoints, their pods and revisions, and the gateways' figures. Writes requests, specs and numbers of replicas."""

    def __init__(self, load: Callable[[], Access], warn: Callable[[str], None] = lambda _: None) -> None:
        """`load` returns the credentials. It is called now, and again when the API server refuses them, because tokens
        expire. `warn` gets the API server's warnings about a write."""
        self._load = load
        self._warn = warn
        self._cautions = Cautions()
        self.access = load()
        self._base = urlsplit(self.access.server)
        self._connection: http.client.HTTPConnection | None = None
        self._server_time: datetime | None = None
        self._leases_refused = False

    def endpoint(self, namespace: str, name: str) -> Json:
        """One LLMEndpoint as it is now. Raises NotFound."""
        return self.call(
            "GET",
            f"{GROUP_PATH}/namespaces/{quote(namespace)}/llmendpoints/{quote(name)}",
            f"LLMEndpoint {namespace}/{name}",
        )

    def endpoints(self, namespace: str | None) -> list[Json]:
        """All LLMEndpoints of a namespace; None: of all namespaces."""
        where = f"/namespaces/{quote(namespace)}" if namespace else ""
        return self._list(f"{GROUP_PATH}{where}/llmendpoints", CACHED)

    def pods(self, namespace: str | None, endpoint: str | None = None) -> list[Json]:
        """The engine pods of one endpoint, or of all."""
        where = f"/namespaces/{quote(namespace)}" if namespace else ""
        selector = f"{ENDPOINT_LABEL}={endpoint}" if endpoint else ENDPOINT_LABEL
        selector = f"{selector},{REVISION_LABEL}"
        return self._list(f"/api/v1{where}/pods", {**CACHED, "labelSelector": selector})

    def records(self, namespace: str, endpoint: str) -> list[Json]:
        """The endpoint's ControllerRevisions."""
        selector = {"labelSelector": f"{ENDPOINT_LABEL}={endpoint}"}
        return self._list(f"/apis/apps/v1/namespaces/{quote(namespace)}/controllerrevisions", selector)

    def patch_endpoint(self, namespace: str, name: str, patch: Json) -> Json:
        """Apply a merge patch. Raises Conflict if the object has another resourceVersion than the patch."""
        path = (
            f"{GROUP_PATH}/namespaces/{quote(namespace)}/llmendpoints/{quote(name)}?fieldManager=kubectl-llm"
        )
        return self.call("PATCH", path, f"LLMEndpoint {namespace}/{name}", patch)

    def scale(self, namespace: str, name: str, replicas: int) -> Json:
        """Set spec.replicas through the scale subresource."""
        path = f"{GROUP_PATH}/namespaces/{quote(namespace)}/llmendpoints/{quote(name)}/scale?fieldManager=kubectl-llm"
        return self.call("PATCH", path, f"LLMEndpoint {namespace}/{name}", {"spec": {"replicas": replicas}})

    def gateway_pods(self, namespace: str | None) -> list[Json]:
        """The gateway's running pods, of one namespace or of all."""
        where = f"/namespaces/{quote(namespace)}" if namespace else ""
        found = self._list(f"/api/v1{where}/pods", {**CACHED, "labelSelector": GATEWAY_SELECTOR})
        return [pod for pod in found if (pod.get("status") or {}).get("phase") == "Running"]

    def services(self, namespace: str | None, selector: str) -> list[Json]:
        """Those with these labels, of one namespace or of all."""
        where = f"/namespaces/{quote(namespace)}" if namespace else ""
        return self._list(f"/api/v1{where}/services", {**CACHED, "labelSelector": selector})

    def proxied(
        self,
        method: str,
        path: str,
        what: str,
        read: Callable[[http.client.HTTPResponse], T],
        body: Callable[[], Iterable[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """What `read` makes of an answer, which may be large, over a connection of its own. `body` is called again where
        expired credentials were renewed."""

        def ask() -> tuple[int, tuple[str, list[T]]]:
            connection = self._connect()
            try:
                given = {**self._headers(), **(headers or {})}
                connection.request(method, self._base.path + path, body() if body else None, given)
                response = connection.getresponse()
                if response.status >= 300:
                    return response.status, (response.read(1 << 16).decode(errors="replace"), [])
                return response.status, ("", [read(response)])
            except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
                raise Unreachable(f"no answer from {what}: {error}") from None
            finally:
                connection.close()

        status, (text, found) = self._renewing(ask)
        if status >= 300:
            raise _service_error(status, text, what)
        return found[0]

    def demand(self, pod: Json) -> Json:
        """What a gateway knows of each endpoint now: the first line of its `/demand`, a stream that does not end by
        itself."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}:{GATEWAY_PORT}/proxy/demand"
        line = self._first_line(path, f"gateway pod {namespace}/{name}")
        try:
            found: Json = json.loads(line)["endpoints"]
        except (ValueError, KeyError, TypeError):
            raise Unreachable(
                f"gateway pod {namespace}/{name} answers {line[:80]!r}; is it of another version?"
            ) from None
        return found

    def revisions(self, pod: Json, namespace: str, name: str) -> Json:
        """A gateway's counters of an endpoint, by revision, since it started."""
        where, gateway = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{quote(where)}/pods/{quote(gateway)}:{GATEWAY_PORT}/proxy/revisions/{quote(namespace)}/{quote(name)}"
        return self.call("GET", path, f"gateway pod {where}/{gateway}")

    def operator_leases(self) -> tuple[list[Json] | None, datetime | None]:
        """The operators' Leases (None if this user may not list them), and the API server's time."""
        if self._leases_refused:
            return None, None
        query = {**CACHED, "fieldSelector": f"metadata.name={LEASE_NAME}"}
        try:
            return self._list("/apis/coordination.k8s.io/v1/leases", query), self._server_time
        except (NoAccess, NotFound) as error:
            if isinstance(error, Unreachable):
                raise
            self._leases_refused = True
            return None, None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _list(self, path: str, query: dict[str, str]) -> list[Json]:
        items: list[Json] = self.call("GET", f"{path}?{urlencode(query)}", path.rpartition("/")[2])["items"]
        return items

    def _first_line(self, path: str, what: str) -> bytes:
        """The first line of an answer, over a separate connection, which is then closed."""
        status, text = self._renewing(lambda: self._read_line(path, what))
        if status >= 300:
            raise _error(status, text.decode(), what)
        return text

    def _read_line(self, path: str, what: str) -> tuple[int, bytes]:
        connection = self._connect()
        try:
            connection.request("GET", self._base.path + path, headers=self._headers())
            response = connection.getresponse()
            return response.status, response.read() if response.status >= 300 else response.readline()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no answer from {what}: {error}") from None
        finally:
            connection.close()

    def _renewing(self, ask: Callable[[], tuple[int, T]]) -> tuple[int, T]:
        """Send a request. If the credentials have expired, load them again, once, and send it over a new connection."""
        status, answer = ask()
        if status != 401:
            return status, answer
        self.close()
        self.access = self._load()
        return ask()

    def _headers(self, content: str | None = None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "kubectl-llm"}
        if self.access.token:
            headers["Authorization"] = f"Bearer {self.access.token}"
        if content:
            headers["Content-Type"] = content
        return headers

    def call(self, method: str, path: str, what: str, body: Json | None = None) -> Json:
        """One request and its answer. `what` names the object in errors."""
        data = json.dumps(body) if body is not None else None
        status, text = self._renewing(lambda: self._exchange(method, self._base.path + path, data))
        if status >= 300:
            raise _error(status, text, what)
        try:
            found: Json = json.loads(text)
        except ValueError:
            raise NoAccess(
                f"{self.access.server} is no Kubernetes API server: it answered {text[:80]!r}"
            ) from None
        return found

    def _exchange(self, method: str, path: str, data: str | None) -> tuple[int, str]:
        """Send one request. The server may have closed the kept connection: then try once more on a fresh one."""
        fresh = self._connection is None
        try:
            connection = self._connection = self._connection or self._connect()
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            connection.request(method, path, data, self._headers(kind if data is not None else None))
            response = connection.getresponse()
            self._server_time = _time_of(response.getheader("Date"))
            if data is not None:
                for caution in self._cautions.new_in(response.headers.get_all("Warning") or ()):
                    self._warn(caution)
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not fresh and isinstance(error, (ConnectionError, http.client.HTTPException)):
                return self._exchange(method, path, data)
            raise Unreachable(f"no answer from {self.access.server}: {error}") from None

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._base.hostname or "", self._base.port
        if self.access.ssl is None:
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self.access.ssl)
        if self.access.server_name:
            # The name in the certificate differs from the one to connect to.
            plain = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
            plain.connect()
            connection.sock = self.access.ssl.wrap_socket(plain.sock, server_hostname=self.access.server_name)
        return connection


def _time_of(date: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(date or "")
    except ValueError:
        return None


def _service_error(status: int, text: str, what: str) -> CliError:
    """An error in OpenAI's shape is the service's; any other is the API server's."""
    try:
        message = str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return _error(status, text, what)
    if status >= 500:
        return Unreachable(message)
    return NotFound(message) if status == 404 else Refused(message)


def _error(status: int, text: str, what: str) -> CliError:
    try:
        message = str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        message = text.strip()[:300]
    if status == 404:
        if "the server could not find the requested resource" in message or "page not found" in message:
            kind = "LLMKeys" if what.startswith("LLMKey") else "LLMEndpoints"
            return NotFound(
                f"this cluster has no {kind}: install the chart first, or after an upgrade apply its CRDs ({message.strip()})"
            )
        return NotFound(f"{what} not found")
    kinds: dict[int, type[CliError]] = {401: NoAccess, 403: NoAccess, 409: Conflict, 422: Refused}
    if status in (429, 500, 503, 504):
        return Unreachable(f"the API server answered {status}: {message}")
    return kinds.get(status, CliError)(f"{what}: {message}")
