"""`kubectl get … -o json` without a process for each: tests ask ten times a second, and a start of kubectl takes a fifth
of a second of a core."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.cluster.errors import CommandFailed

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Question:
    """What of kubectl's arguments is understood here."""

    kinds: tuple[str, ...]
    name: str | None
    namespace: str | None
    """None: in all of them, or of no namespace."""
    query: tuple[tuple[str, str], ...]


def understand(arguments: tuple[str, ...]) -> Question | None:
    """None for what only kubectl understands."""
    positional: list[str] = []
    namespace: str | None = "default"
    query: list[tuple[str, str]] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-n", "--namespace"):
            namespace = next(rest)
        elif argument in ("-l", "--selector"):
            query.append(("labelSelector", next(rest)))
        elif argument.startswith("--field-selector="):
            query.append(("fieldSelector", argument.partition("=")[2]))
        elif argument == "-A":
            namespace = None
        elif argument.startswith("-") or "/" in argument:
            return None
        else:
            positional.append(argument)
    if len(positional) not in (1, 2) or (len(positional) == 2 and query):
        return None
    kinds, *name = positional
    return Question(tuple(kinds.split(",")), name[0] if name else None, namespace, tuple(query))


@dataclass(frozen=True)
class Kind:
    """Where the API server has the objects of a kind."""

    root: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str | None) -> str:
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.root}{scope}/{self.plural}" + (f"/{name}" if name else "")


class Reader:
    """Of one cluster, with what `context` shows it."""

    def __init__(self, address: str, port: int, context: ssl.SSLContext) -> None:
        self._address = address
        self._port = port
        self._context = context
        self._kinds: dict[str, Kind] = {}

    def get(self, question: Question) -> Any:
        """An object, or a List; CommandFailed with the API server's words otherwise."""
        if question.name is not None:
            [kind] = question.kinds
            return _shown(self._read(self._kind(kind).path(question.namespace, question.name)))
        items = [item for kind in question.kinds for item in self._items(self._kind(kind), question)]
        return {"apiVersion": "v1", "kind": "List", "items": items}

    def _items(self, kind: Kind, question: Question) -> list[Any]:
        found = self._read(f"{kind.path(question.namespace, None)}?{urlencode(question.query)}")
        about = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [_shown({**about, **item}) for item in found["items"]]

    def _kind(self, name: str) -> Kind:
        """By any name that kubectl takes; asked for anew when it is not known, for it may have been installed since."""
        if name.lower() not in self._kinds:
            self._kinds = self._discover()
        try:
            return self._kinds[name.lower()]
        except KeyError:
            raise CommandFailed(["get", name], 1, f"the server has no resource type {name!r}") from None

    def _discover(self) -> dict[str, Kind]:
        found: dict[str, Kind] = {}
        for root in ("/api", "/apis"):
            for group in self._read(root, _DISCOVERY)["items"]:
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    path = "/".join(part for part in (root, name, version["version"]) if part)
                    for resource in version.get("resources", ()):
                        kind = Kind(path, resource["resource"], resource["scope"] == "Namespaced")
                        singular = (
                            resource.get("singularResource") or resource["responseKind"]["kind"].lower()
                        )
                        for known_as in (kind.plural, singular, *resource.get("shortNames", ())):
                            found.setdefault(known_as, kind)
                            found.setdefault(f"{known_as}.{name}", kind)
        return found

    def _read(self, path: str, accept: str = "application/json") -> Any:
        connection = http.client.HTTPSConnection(
            self._address, self._port, timeout=_TIMEOUT_S, context=self._context
        )
        try:
            connection.request("GET", path, headers={"Accept": accept})
            response = connection.getresponse()
            status, text = response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(["get", path], 1, f"the API server does not answer: {error}") from error
        finally:
            connection.close()
        if status != 200:
            raise CommandFailed(["get", path], 1, _message(status, text))
        return json.loads(text)


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    """Without what kubectl leaves out, too."""
    item["metadata"].pop("managedFields", None)
    return item


def _message(status: int, text: str) -> str:
    try:
        said = json.loads(text)
        return f"Error from server ({said['reason']}): {said['message']}"
    except (ValueError, KeyError, TypeError):
        return f"Error from server: {status} {text[:500]}"
