"""LLMKeys of the cluster. Key texts never come here: objects have their hashes."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from .client import Client, Json
from .core.names import GROUP_PATH
from .errors import Conflict, Refused

ATTEMPTS = 10
"""Attempts to write a key that others change at the same time."""


class KeyStore:
    """Reads and writes LLMKeys."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self, namespace: str | None) -> list[Json]:
        """Those of a namespace; None: of all."""
        where = f"/namespaces/{quote(namespace)}" if namespace else ""
        found: list[Json] = self._client.call("GET", f"{GROUP_PATH}{where}/llmkeys", "LLMKeys")["items"]
        return found

    def get(self, namespace: str, name: str) -> Json:
        """Raises NotFound."""
        return self._client.call("GET", _path(namespace, name), f"LLMKey {namespace}/{name}")

    def create(self, key: Json) -> Json:
        """Raises Refused if there is one of this name."""
        namespace, name = key["metadata"]["namespace"], key["metadata"]["name"]
        try:
            return self._client.call("POST", _path(namespace), f"LLMKey {namespace}/{name}", key)
        except Conflict:
            raise Refused(
                f"LLMKey {namespace}/{name} exists already; take another name, or make a new key for it with "
                f"kubectl llm keys rotate {name} -n {namespace}"
            ) from None

    def change(self, namespace: str, name: str, change: Callable[[Json], Json]) -> Json:
        """Write the fields of the spec that `change` makes of the key, as it is then. If somebody else writes in between, begin
        again. Raises what `change` raises, Conflict."""
        for _ in range(ATTEMPTS):
            key = self.get(namespace, name)
            version = {"resourceVersion": key["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": change(key)}
            try:
                return self._client.call("PATCH", _path(namespace, name), f"LLMKey {namespace}/{name}", patch)
            except Conflict:
                continue
        raise Conflict(
            f"LLMKey {namespace}/{name} changed {ATTEMPTS} times while this command tried to write it"
        )

    def delete(self, namespace: str, name: str) -> None:
        """Raises NotFound."""
        self._client.call("DELETE", _path(namespace, name), f"LLMKey {namespace}/{name}")


def _path(namespace: str, name: str | None = None) -> str:
    """A write carries the field manager, by which `--show-managed-fields` names this program."""
    one = f"/{quote(name)}" if name else ""
    return f"{GROUP_PATH}/namespaces/{quote(namespace)}/llmkeys{one}?fieldManager=kubectl-llm"
