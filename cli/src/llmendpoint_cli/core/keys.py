"""LLMKeys: what a key text is made of, and how create, rotate and list see one. Randomness and time are passed in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..errors import BadUsage, Refused
from .objects import Object, full_name, name_of, namespace_of, parse_time

Json = dict[str, Any]

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH, SECRET_BYTES = 16, 32
MOST_HASHES, MOST_GRANTS, MOST_LABELS = 4, 64, 16
ALL = "*"
LONGEST = timedelta(days=3650)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_DURATION = re.compile(r"([0-9]{1,7})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True)
class KeyView:
    """One LLMKey as `keys list` shows it. `old_until`: the last time at which an older key text is still accepted."""

    namespace: str
    name: str
    id: str
    grants: tuple[str, ...]
    priority: str
    expires: str | None
    state: str
    old_until: str | None


def key_text(key_id: str, secret: str) -> str:
    """What a caller sends."""
    return f"llm_{key_id}_{secret}"


def hash_of(text: str, namespace: str) -> str:
    """What an LLMKey of this namespace has of it. In another namespace it is the hash of no key, so a copy lets nobody in."""
    inner = hashlib.sha256(text.encode()).hexdigest()
    return hashlib.sha256(f"{namespace}/{inner}".encode()).hexdigest()


def parse_duration(text: str, option: str) -> timedelta:
    """`30d`, `12h`, `90m` or `0`. Raises BadUsage."""
    found = _DURATION.fullmatch(text)
    duration = timedelta(seconds=int(found[1]) * _UNITS[found[2]]) if found else timedelta()
    if (found is None and text != "0") or duration > LONGEST:
        raise BadUsage(
            f"{option} takes a number and s, m, h or d, at most {LONGEST.days}d; for example {option} 30d"
        )
    return duration


def time_text(moment: datetime) -> str:
    """As the API writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_grants(names: Iterable[str], labels: Iterable[str], everything: bool) -> list[Json]:
    """The grants that options ask for. Raises BadUsage where there is none."""
    grants = [_grant(name) for name in names]
    pairs = [label.partition("=") for label in labels]
    if any(not key or not mark for key, mark, _ in pairs):
        raise BadUsage("--grant-label takes KEY=VALUE; for example --grant-label tier=gold")
    if pairs:
        grants.append({"matchLabels": {key: value for key, _, value in pairs}})
    if everything:
        grants.append({})
    if not grants:
        raise BadUsage(
            "name what the key may use: --grant NAME, --grant NAMESPACE/NAME, --grant-label KEY=VALUE, or --all"
        )
    if len(grants) > MOST_GRANTS or len(pairs) > MOST_LABELS:
        raise BadUsage(f"a key has at most {MOST_GRANTS} grants, and a grant at most {MOST_LABELS} labels")
    return grants


def _grant(text: str) -> Json:
    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise BadUsage("--grant takes NAME, NAMESPACE/NAME or 'NAMESPACE/*'; for example --grant chat")
    grant = {"namespace": namespace} if namespace else {}
    return grant if name == ALL else {**grant, "name": name}


def make_key(namespace: str, name: str, key_id: str, text: str, **spec: Any) -> Json:
    """The manifest of a new key. Of `spec`, what is None is left out."""
    return {
        "apiVersion": "llmendpoint.io/v1alpha1",
        "kind": "LLMKey",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "id": key_id,
            "hashes": [{"sha256": hash_of(text, namespace)}],
            **{field: value for field, value in spec.items() if value is not None},
        },
    }


def rotated(key: Object, text: str, now: datetime, keep: timedelta) -> list[Json]:
    """The hashes after a rotation: `text` is the current key, older ones are accepted for `keep`, and what has expired
    goes. Raises Refused where too many older ones are still accepted."""
    older = []
    for entry in key["spec"]["hashes"]:
        end = min(_end_of(entry) or now + keep, now + keep)
        if end > now:
            older.append({"sha256": entry["sha256"], "expires": time_text(end)})
    if len(older) >= MOST_HASHES:
        first = min(str(entry["expires"]) for entry in older)
        raise Refused(
            f"{full_name(key)}: {len(older)} older keys of it are still accepted, and a key has at most {MOST_HASHES}; "
            f"wait until {first}, or use --keep 0 to refuse all of them at once"
        )
    return [{"sha256": hash_of(text, namespace_of(key))}, *older]


def with_hashes(key: Object, hashes: list[Json]) -> Json:
    """The key as a manifest for Git: without what the API server sets."""
    metadata = {field: key["metadata"][field] for field in ("name", "namespace")}
    if labels := key["metadata"].get("labels"):
        metadata["labels"] = labels
    known = {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMKey"}
    return {**known, "metadata": metadata, "spec": {**key["spec"], "hashes": hashes}}


def appliers(key: Object) -> list[str]:
    """Who applies a manifest of this object, and so writes its hashes again."""
    found = {
        str(entry.get("manager"))
        for entry in key["metadata"].get("managedFields") or ()
        if entry.get("operation") == "Apply"
    }
    if LAST_APPLIED in (key["metadata"].get("annotations") or {}):
        found.add("kubectl apply")
    return sorted(found)


def unusable(key: Object, grant: Mapping[str, Any], endpoint: Object | None) -> str | None:
    """Why a grant for one endpoint has no effect yet; None if it has. `endpoint` is None if it does not exist."""
    own = namespace_of(key)
    where = f"{grant.get('namespace', own)}/{grant['name']}"
    if endpoint is None:
        return f"LLMEndpoint {where} does not exist yet"
    allowed = (endpoint["spec"].get("access") or {}).get("namespaces") or ()
    if namespace_of(endpoint) == own or own in allowed or ALL in allowed:
        return None
    return f"{where} does not allow keys of namespace {own} yet: its spec.access.namespaces must have {own}"


def view_of(key: Object, now: datetime) -> KeyView:
    """What `keys list` shows of it."""
    spec = key["spec"]
    ends = [(_end_of(entry), entry.get("expires")) for entry in spec["hashes"]]
    later = [(end, str(text)) for end, text in ends[1:] if end is not None and end > now]
    return KeyView(
        namespace_of(key), name_of(key), str(spec["id"]), tuple(grant_texts(spec.get("grants") or ())),
        str(spec.get("priority", "Normal")), spec.get("expires"), _state(spec, ends[0][0], now),
        max(later)[1] if later else None,
    )  # fmt: skip


def _state(spec: Object, current: datetime | None, now: datetime) -> str:
    if spec.get("disabled"):
        return "Disabled"
    ends = [end for end in (_end_of(spec), current) if end is not None]
    return "Expired" if any(end <= now for end in ends) else "Active"


def _end_of(entry: Object) -> datetime | None:
    """None: it does not expire. A time that this program cannot read is over: a rotation must not lengthen it."""
    if not entry.get("expires"):
        return None
    return parse_time(entry["expires"]) or datetime.min.replace(tzinfo=UTC)


def grant_texts(grants: Iterable[Object]) -> Iterator[str]:
    """Each as `--grant` takes it; labels as a selector."""
    for grant in grants:
        where = f"{grant['namespace']}/" if grant.get("namespace") else ""
        labels = ",".join(f"{key}={value}" for key, value in (grant.get("matchLabels") or {}).items())
        yield f"{where}{labels or grant.get('name') or ALL}"
