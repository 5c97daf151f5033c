"""Which model name means which endpoint."""

from collections.abc import Iterable, Mapping

from llmendpoint_gateway.core.endpoint.objects import Endpoint


def claim_names(endpoints: Iterable[Endpoint]) -> dict[str, str]:
    """Model name -> endpoint key.

    `namespace/name` always means its endpoint. A bare name belongs to the oldest endpoint that claims it; of two
    created in the same second, to the first by key, so that every gateway decides alike. An endpoint that claims no bare
    name claims its own.
    """
    ordered = sorted(endpoints, key=lambda e: (e.created, e.key))
    names: dict[str, str] = {}
    for endpoint in ordered:
        for name in endpoint.served_names:
            names.setdefault(name, endpoint.key)
    names.update({endpoint.key: endpoint.key for endpoint in ordered})
    return names


def conflicts(endpoint: Endpoint, names: Mapping[str, str]) -> dict[str, str]:
    """The bare names that it claims and another has, with their owners."""
    owners = {name: names[name] for name in endpoint.served_names if name in names}
    return {name: owner for name, owner in owners.items() if owner != endpoint.key}
