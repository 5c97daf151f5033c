"""What the models share: camelCase on the wire, immutable in Python, and the marks that only a CRD has.

Every list, map and string carries a bound: the API server refuses a CEL rule whose worst case it cannot bound.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"

BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"


class ApiModel(BaseModel):
    """Unknown fields are ignored on reading: an object may have been stored under a newer CRD."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


def rule(expression: str, message: str) -> dict[str, str]:
    """One CEL validation rule; the message says what to write instead."""
    return {"rule": expression, "message": message}


def rules(*items: dict[str, str]) -> dict[str, Any]:
    """CEL rules as JSON schema extension, for `json_schema_extra`."""
    return {"x-kubernetes-validations": list(items)}


def map_list(*keys: str) -> dict[str, Any]:
    """A list whose items are told apart by these fields, so that server-side apply merges it item by item."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def set_list() -> dict[str, Any]:
    """A list of distinct scalars."""
    return {"x-kubernetes-list-type": "set"}


Quantity = Annotated[
    str,
    BeforeValidator(str),
    Field(
        json_schema_extra={"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN, "maxLength": 32}
    ),
]
"""A Kubernetes quantity such as `500m`, `4` or `16Gi`; the API server also takes a bare number."""

ByteQuantity = Annotated[
    str,
    BeforeValidator(str),
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "pattern": BYTES_PATTERN, "maxLength": 32}),
]
"""A quantity of memory as our engine reads it, such as `512Mi` or `2Gi`."""
