"""Which namespaces' keys may use an endpoint: spec.access of an LLMEndpoint."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel, rule, rules, set_list

ALL_NAMESPACES = "*"
NAMESPACE_FORM = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

ACCESS_NAME_RULE = rule(
    f"self == '{ALL_NAMESPACES}' || self.matches('{NAMESPACE_FORM}')",
    "access.namespaces: each must be the name of a namespace, with a-z, 0-9 and '-', or '*' for all; for example team-b",
)
ACCESS_ALL_RULE = rule(
    f"!self.exists(name, name == '{ALL_NAMESPACES}') || size(self) == 1",
    "access.namespaces: '*' stands for all namespaces, so it must be the only entry; write ['*'], or only names",
)

AccessName = Annotated[str, Field(min_length=1, max_length=63, json_schema_extra=rules(ACCESS_NAME_RULE))]


class AccessSpec(ApiModel):
    """Which keys may use the endpoint."""

    namespaces: Annotated[
        tuple[AccessName, ...],
        Field(max_length=64, json_schema_extra=set_list() | rules(ACCESS_ALL_RULE)),
    ] = ()
    """Namespaces whose keys may use the endpoint, beside its own. `["*"]`: those of all namespaces. A key of such a
    namespace also needs a grant for the endpoint."""
