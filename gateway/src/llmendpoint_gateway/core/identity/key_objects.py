"""An LLMKey, parsed and frozen: a named key, which endpoints it may use, and until when. Nothing in it is secret: of the
key's text it has a hash."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

from llmendpoint_gateway.core.identity.grants import Grant
from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.errors import MalformedObject

MOST_HASHES, MOST_GRANTS = 4, 64
"""Of one LLMKey, as in the CRD."""
ID = re.compile("[a-z0-9]{16}")
SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Hash:
    """What `Proof.in_namespace` makes of a key's text in the LLMKey's namespace. `expires`: seconds since 1970."""

    digest: bytes
    expires: float = inf


@dataclass(frozen=True, slots=True)
class Key:
    """An LLMKey. `created` is as in Endpoint, so its text order is time order. `id`: the part of the key's text by which the LLMKey is
    found. `priority`: the highest that its requests may ask for."""

    namespace: str
    name: str
    created: str
    id: str
    hashes: tuple[Hash, ...]
    grants: tuple[Grant, ...] = ()
    expires: float = inf
    disabled: bool = False
    priority: Priority = Priority.NORMAL

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_key(body: Mapping[str, Any]) -> Key:
    """Raises MalformedObject for what the CRD does not allow: a key that is half understood lets nobody in."""
    metadata, spec = _mapping(body, "metadata", ""), _mapping(body, "spec", "")
    namespace, name = (_text(metadata, field, "metadata.") for field in ("namespace", "name"))
    created = _text(metadata, "creationTimestamp", "metadata.")
    where = f"LLMKey {namespace}/{name}: spec."
    id_ = _text(spec, "id", where)
    if not ID.fullmatch(id_):
        raise MalformedObject(f"{where}id is to be 16 of a-z and 0-9")
    priority = spec.get("priority", "Normal")
    if not isinstance(priority, str) or priority.upper() not in Priority.__members__:
        raise MalformedObject(f"{where}priority is to be High, Normal or Low")
    disabled = spec.get("disabled", False)
    if not isinstance(disabled, bool):
        raise MalformedObject(f"{where}disabled is to be true or false")
    return Key(
        namespace,
        name,
        created,
        id_,
        tuple(_hash(entry, where) for entry in _list(spec, "hashes", where, MOST_HASHES)),
        tuple(_grant(entry, namespace, where) for entry in _list(spec, "grants", where, MOST_GRANTS)),
        _time(spec, where),
        disabled,
        Priority[priority.upper()],
    )


def _hash(entry: Any, where: str) -> Hash:
    text = entry.get("sha256") if isinstance(entry, Mapping) else None
    if not isinstance(text, str) or not SHA256.fullmatch(text):
        raise MalformedObject(f"{where}hashes[].sha256 is to be 64 of 0-9 and a-f")
    return Hash(bytes.fromhex(text), _time(entry, f"{where}hashes[]."))


def _grant(entry: Any, namespace: str, where: str) -> Grant:
    """Without a namespace it is the key's own. An unknown field might narrow the grant, so it is an error."""
    if not isinstance(entry, Mapping) or entry.keys() - {"namespace", "name", "matchLabels"}:
        raise MalformedObject(f"{where}grants[] is to have namespace, name and matchLabels only")
    labels = entry.get("matchLabels") or {}
    texts = (entry.get("namespace") or namespace, entry.get("name") or "")
    if not isinstance(labels, Mapping) or not all(
        isinstance(text, str) for text in (*texts, *labels.values())
    ):
        raise MalformedObject(
            f"{where}grants[]: namespace, name and the values of matchLabels are to be texts"
        )
    return Grant(*texts, frozenset(labels.items()))


def _time(entry: Mapping[str, Any], where: str) -> float:
    """Seconds since 1970 of `expires`; without it, never."""
    text = entry.get("expires")
    if text is None:
        return inf
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise MalformedObject(f"{where}expires is to be a time such as 2027-01-01T00:00:00Z") from None


def _list(spec: Mapping[str, Any], field: str, where: str, most: int) -> list[Any]:
    found = spec.get(field, [])
    if not isinstance(found, list) or len(found) > most:
        raise MalformedObject(f"{where}{field} is to be a list of at most {most}")
    return found


def _mapping(body: Mapping[str, Any], field: str, where: str) -> Mapping[str, Any]:
    found = body.get(field)
    if not isinstance(found, Mapping):
        raise MalformedObject(f"an LLMKey without {where}{field}")
    return found


def _text(body: Mapping[str, Any], field: str, where: str) -> str:
    found = body.get(field)
    if not isinstance(found, str):
        raise MalformedObject(f"an LLMKey without {where.removeprefix('LLMKey ')}{field}")
    return found
