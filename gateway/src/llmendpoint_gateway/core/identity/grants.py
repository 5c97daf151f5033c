"""Who may use which endpoint: a key's grants say what its owner wants to use, an endpoint's `spec.access` says which
namespaces may. A key of another namespace needs both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from llmendpoint_gateway.core.identity.priority import Priority

ANY = "*"


class Grant(NamedTuple):
    """Endpoints of a namespace: the one of this name, those with all these labels, or without either all of them."""

    namespace: str
    name: str = ""
    labels: frozenset[tuple[str, str]] = frozenset()


class Target(Protocol):
    """What is used of an endpoint. `access`: the namespaces whose keys may use it, or ANY; None if it does not say: its own
    namespace, and callers without a key where these are let in at all."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> frozenset[tuple[str, str]]: ...
    @property
    def access(self) -> frozenset[str] | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """Who sends a request. `key`: `namespace/name` of the LLMKey; empty for a caller without one. `grants`: by namespace.
    `caller`: the number of this caller (core/identity/caller.py); 0: its address decides. `tenant`: the number at endpoints of other
    namespaces, the same for all keys of its own. An LLMKey that changes has a new identity."""

    key: str
    namespace: str
    grants: Mapping[str, tuple[Grant, ...]]
    priority: Priority
    caller: int
    tenant: int = 0

    def caller_at(self, namespace: str) -> int:
        """The caller at an endpoint of this namespace. Whoever makes keys there may have many callers, but keys of other namespaces are to
        take no more turns for being many."""
        return self.caller if namespace == self.namespace else self.tenant


ANONYMOUS = Identity("", "", {}, Priority.NORMAL, 0)
"""Has sent no key."""


def by_namespace(grants: Iterable[Grant]) -> Mapping[str, tuple[Grant, ...]]:
    found: dict[str, tuple[Grant, ...]] = {}
    for grant in grants:
        found[grant.namespace] = (*found.get(grant.namespace, ()), grant)
    return found


def may_use(who: Identity, target: Target) -> bool:
    if not who.key:
        return target.access is None
    namespace, access = target.namespace, target.access
    if namespace != who.namespace and not (access and (who.namespace in access or ANY in access)):
        return False
    return any(
        (not grant.name or grant.name == target.name) and grant.labels <= target.labels
        for grant in who.grants.get(namespace, ())
    )
