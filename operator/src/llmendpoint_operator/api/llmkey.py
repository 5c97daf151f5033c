"""LLMKey: a key that callers send to the gateway, and what it may use. Nothing in it is secret."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .access import NAMESPACE_FORM
from .base import ApiModel, map_list, rule, rules

ID_FORM = "^[a-z0-9]{16}$"
HASH_FORM = "^[0-9a-f]{64}$"
NAME_FORM = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
MOST_HASHES, MOST_GRANTS, MOST_LABELS = 4, 64, 16
LONGEST_LABEL = 317
"""Characters of a label's name with its prefix: 253, a slash, and 63."""

ID_RULE = rule(
    f"self.matches('{ID_FORM}')",
    "spec.id must be the second part of the key, 16 characters of a-z and 0-9; for example 4k2m9x0a7b3c5d8e. "
    "`kubectl llm keys create` makes it",
)
SAME_ID_RULE = rule(
    "self == oldSelf",
    "spec.id cannot change, because logs name the key by it; make another key with `kubectl llm keys create`",
)
KEY_TEXT_RULE = rule(
    "!self.startsWith('llm_')",
    "spec.hashes: sha256 has a key itself. Whoever reads this manifest could use the key: throw the key away, and make "
    "another one with `kubectl llm keys create`",
)
HASH_RULE = rule(
    f"self.startsWith('llm_') || self.matches('{HASH_FORM}')",
    "spec.hashes: sha256 must be a SHA-256, 64 characters of 0-9 and a-f; `kubectl llm keys create` makes it from the "
    "key and the namespace",
)
GRANT_RULE = rule(
    "!has(self.name) || !has(self.matchLabels)",
    "spec.grants: each has at most one of name and matchLabels; write two grants, or leave both out for all endpoints "
    "of the namespace",
)
GRANT_NAMESPACE_RULE = rule(
    f"self.matches('{NAMESPACE_FORM}')",
    "spec.grants: namespace must be the name of one namespace, with a-z, 0-9 and '-'; for example team-b. Write a grant "
    "for each namespace",
)
GRANT_NAME_RULE = rule(
    f"self.matches('{NAME_FORM}')",
    "spec.grants: name must be the name of one LLMEndpoint; for example chat. For all endpoints of the namespace leave "
    "it out",
)
LABELS_RULE = rule(
    f"self.all(label, size(label) >= 1 && size(label) <= {LONGEST_LABEL})",
    f"spec.grants: the name of a label in matchLabels has 1 to {LONGEST_LABEL} characters; for example tier",
)


Time = Annotated[
    str, Field(max_length=40, pattern="^[0-9T:.Z+-]+$", json_schema_extra={"format": "date-time"})
]
"""The API server alone would take a small z, too, which not every reader does: such a key would be refused before its time."""


class Priority(StrEnum):
    """How urgent requests may be."""

    HIGH = "High"
    NORMAL = "Normal"
    LOW = "Low"


class KeyHash(ApiModel):
    """One key text that callers may send, as its hash."""

    sha256: Annotated[
        str, Field(min_length=1, max_length=128, json_schema_extra=rules(KEY_TEXT_RULE, HASH_RULE))
    ]
    """Hash of the key in this namespace: SHA-256 of the text `NAMESPACE/HASH`, where HASH is the SHA-256 of the whole key, from
    `llm_` to its last character. Both as 64 lower-case hexadecimal digits. In another namespace it is the hash of no key."""
    expires: Time | None = None
    """Time from which this key text is refused; for example `2027-01-01T00:00:00Z`. `kubectl llm keys rotate` sets it for the
    old key text. If not set, `spec.expires` applies alone."""


class Grant(ApiModel, json_schema_extra=rules(GRANT_RULE)):
    """Endpoints that the key may use."""

    namespace: Annotated[
        str, Field(min_length=1, max_length=63, json_schema_extra=rules(GRANT_NAMESPACE_RULE))
    ] | None = None  # fmt: skip
    """Namespace of the endpoints. If not set, the key's own. Endpoints of another namespace must also allow it with
    `spec.access.namespaces`."""
    name: Annotated[
        str, Field(min_length=1, max_length=52, json_schema_extra=rules(GRANT_NAME_RULE))
    ] | None = None  # fmt: skip
    """Name of one endpoint. Without `name` and `matchLabels`: all endpoints of the namespace."""
    match_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]],
        Field(min_length=1, max_length=MOST_LABELS, json_schema_extra=rules(LABELS_RULE)),
    ] | None = None  # fmt: skip
    """Labels that an endpoint must all have. An endpoint that gets them later is included."""


class LLMKeySpec(ApiModel):
    """The key, and what it may use."""

    id: Annotated[
        str, Field(min_length=1, max_length=64, json_schema_extra=rules(ID_RULE, SAME_ID_RULE))
    ]  # fmt: skip
    """The second part of the key: 16 characters that name it and are not secret. It cannot change."""
    hashes: Annotated[
        tuple[KeyHash, ...],
        Field(min_length=1, max_length=MOST_HASHES, json_schema_extra=map_list("sha256")),
    ]
    """Hashes of the key texts that are accepted. The first is of the current one. While callers change to it, the hash of
    the old one stays, with `expires`."""
    expires: Time | None = None
    """Time from which the key is refused, whatever `hashes` says; for example `2027-01-01T00:00:00Z`. If not set, the key does
    not expire."""
    disabled: bool = False
    """Refuse the key. Gateways do so within two seconds. With `false` it works again."""
    grants: Annotated[tuple[Grant, ...], Field(max_length=MOST_GRANTS)] = ()
    """Endpoints that the key may use. Without grants it may use none."""
    priority: Priority = Priority.NORMAL
    """Highest priority that requests with the key may ask for. A request that asks for more gets this one."""
