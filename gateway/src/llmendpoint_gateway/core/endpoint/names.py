"""Which model name means which endpoint.

`namespace/name` always means its endpoint. A bare name belongs to the oldest endpoint that claims it. If two were
created in the same second, the first by key wins, so that all gateway pods decide alike. An endpoint that claims no
bare name claims its own name.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import NamedTuple

from llmendpoint_gateway.core.endpoint.objects import Endpoint

Claims = Mapping[str, tuple[tuple[str, str], ...]]
"""Bare name -> (created, endpoint key) of the endpoints that claim it, the oldest first."""


class Meant(NamedTuple):
    """What a name means to a caller whose permission is known: an endpoint, and perhaps one of its adapters. It is no name, because
    as a name it could be another endpoint's."""

    key: str
    adapter: str = ""

    def __str__(self) -> str:
        return f"{self.key}:{self.adapter}" if self.adapter else self.key


def change_claims(claims: Claims, before: Iterable[Endpoint], after: Iterable[Endpoint]) -> Claims:
    """`before`: the changed endpoints as they were, without new ones. `after`: as they are now, without deleted ones."""
    gone = {(name, endpoint.key) for endpoint in before for name in endpoint.served_names}
    found: dict[str, set[tuple[str, str]]] = {}
    for name in {name for name, _ in gone}:
        found[name] = {claim for claim in claims[name] if (name, claim[1]) not in gone}
    for endpoint in after:
        for name in endpoint.served_names:
            found.setdefault(name, set(claims.get(name, ()))).add((endpoint.created, endpoint.key))
    changed = {**claims, **{name: tuple(sorted(of_name)) for name, of_name in found.items()}}
    return {name: of_name for name, of_name in changed.items() if of_name}


def change_names(
    names: Mapping[str, str], claims: Claims, keys: Container[str], endpoints: Iterable[Endpoint]
) -> Mapping[str, str]:
    """Model name -> endpoint key, after these endpoints changed. `keys`: the keys of all existing endpoints."""
    changed = dict(names)
    for endpoint in endpoints:
        for name in (endpoint.key, *endpoint.served_names):
            if name in keys:
                changed[name] = name
            elif name in claims:
                changed[name] = claims[name][0][1]
            else:
                changed.pop(name, None)
    return changed


def names_of(endpoints: Collection[Endpoint]) -> Mapping[str, str]:
    """Model name -> endpoint key, if there were these endpoints alone."""
    names: dict[str, str] = {}
    for endpoint in sorted(endpoints, key=lambda one: (one.created, one.key)):
        for name in endpoint.served_names:
            names.setdefault(name, endpoint.key)
    return names | {endpoint.key: endpoint.key for endpoint in endpoints}


def conflicts(endpoint: Endpoint, names: Mapping[str, str]) -> dict[str, str]:
    """The bare names that this endpoint claims and another endpoint owns: name -> owner."""
    owners = {name: names[name] for name in endpoint.served_names if name in names}
    return {name: owner for name, owner in owners.items() if owner != endpoint.key}


def split_adapter(name: str, known: Callable[[str], bool]) -> tuple[str, str]:
    """(model name, adapter): `chat:sql` asks the endpoint `chat` for its adapter `sql`. A name that exists as it is names no adapter, also if it has a `:`."""
    if known(name):
        return name, ""
    base, mark, adapter = name.rpartition(":")
    return (base, adapter) if mark and adapter and known(base) else (name, "")
