"""Which model name means which endpoint.

`namespace/name` always means its endpoint. A bare name belongs to the oldest endpoint that claims it; of two created in the
same second, to the first by key, so that every gateway decides alike. An endpoint that claims no bare name claims its own.
"""

from collections.abc import Container, Iterable, Mapping

from llmendpoint_gateway.core.endpoint.objects import Endpoint

Claims = Mapping[str, tuple[tuple[str, str], ...]]
"""Bare name -> (created, endpoint key) of those that claim it, the oldest first."""


def change_claims(claims: Claims, before: Iterable[Endpoint], after: Iterable[Endpoint]) -> Claims:
    """`before`: endpoints as they were, if they were; `after`: the same as they are, if they still are."""
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
    """Model name -> endpoint key, after these endpoints have changed. `keys`: of all endpoints that there are."""
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


def conflicts(endpoint: Endpoint, names: Mapping[str, str]) -> dict[str, str]:
    """The bare names that it claims and another has, with their owners."""
    owners = {name: names[name] for name in endpoint.served_names if name in names}
    return {name: owner for name, owner in owners.items() if owner != endpoint.key}
