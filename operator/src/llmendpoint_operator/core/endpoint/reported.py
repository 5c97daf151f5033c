"""The valid part of a stored status. Whoever may write the status may write anything into it, and a backup
restores an old one. Invalid values are dropped when the status is read, so that a plan neither fails because
of them nor follows them. The next write replaces the whole status and thereby removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ...api.llmendpoint import LLMEndpointStatus
from ..pods.revision import revision_hash
from ..rollout.records import parse_override
from ..times import parse_time, time_text
from .snapshot import Snapshot

Json = dict[str, Any]

LARGEST = 2**53
"""The largest number. Larger integers are not exact in JSON readers that use doubles, and sums of smaller
ones stay finite. Epochs start at the clock's seconds."""
MOST_REPLICAS = 1000
"""The same limit as spec.replicas."""
CLOCKS_DIFFER = timedelta(seconds=60)
"""No operator writes a time that is further in the future."""


def parse_figure(told: Any) -> float:
    """A count, share or number of seconds from an engine. Raises ValueError if it is no usable number."""
    try:
        figure = float(told)
    except OverflowError as error:
        raise ValueError("the figure is too large") from error
    if not 0 <= figure <= LARGEST:  # NaN fails this too
        raise ValueError(f"{figure} is negative, or too large")
    return figure


def _times_of(schema: Any) -> Iterator[str]:
    """Names of all time fields in a JSON schema, at any depth."""
    if isinstance(schema, Mapping):
        for name, field in schema.get("properties", {}).items():
            if "date-time" in (field.get("format"), *(kind.get("format") for kind in field.get("anyOf", ()))):
                yield name
    for inner in schema.values() if isinstance(schema, Mapping) else schema:
        if isinstance(inner, Mapping | list):
            yield from _times_of(inner)


_TIMES = frozenset(_times_of(LLMEndpointStatus.model_json_schema(by_alias=True)))
_LISTS = ("conditions", "revisions", "adapters")
_FIELDS: Mapping[str, TypeAdapter[Any]] = {
    str(info.alias): TypeAdapter(info.rebuild_annotation())
    for info in LLMEndpointStatus.model_fields.values()
}


class _Impossible(Exception):
    """The value is one that no operator writes."""


def cleaned(snapshot: Snapshot, now: datetime) -> Snapshot:
    """The snapshot with the valid part of its status. `endpoint.stored` keeps the status as stored."""
    endpoint = snapshot.endpoint
    status = _consistent(snapshot, read_fields(endpoint.status, now))
    return replace(snapshot, endpoint=replace(endpoint, status=status, stored=endpoint.status))


def read_fields(status: Any, now: datetime) -> Json:
    """The fields that match the schema. In lists of objects, invalid items are dropped one by one."""
    found: Json = {}
    for name, value in status.items() if isinstance(status, Mapping) else ():
        if value is None:
            continue
        items = value if name in _LISTS and isinstance(value, list) else None
        try:
            found[name] = _read(name, value, now) if items is None else _read_items(name, items, now)
        except _Impossible:
            continue
    return found


def _read(name: str, value: Any, now: datetime) -> Any:
    adapter = _FIELDS.get(name)
    if adapter is None:
        raise _Impossible
    try:
        read = adapter.validate_python(_possible(name, value, now))
        return adapter.dump_python(read, mode="json", by_alias=True, exclude_unset=True)
    except (ValidationError, RecursionError) as error:
        raise _Impossible from error


def _read_items(name: str, items: list[Any], now: datetime) -> list[Any]:
    """The valid items, without duplicates."""
    key = "type" if name == "conditions" else "name"
    found: dict[str, Any] = {}
    for item in items[:64]:
        try:
            (read,) = _read(name, [item], now)
        except _Impossible:
            continue
        found.setdefault(read[key], read)
    return list(found.values())


def _possible(name: str, value: Any, now: datetime) -> Any:
    """The value without nulls, with future times replaced by `now`. Raises _Impossible if it is invalid."""
    if isinstance(value, Mapping):
        return {str(k): _possible(str(k), v, now) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_possible("", item, now) for item in value]
    if isinstance(value, int) and not 0 <= value <= LARGEST:
        raise _Impossible
    if name in _TIMES:
        return _time(value, now)
    return value


def _time(value: Any, now: datetime) -> str:
    found = parse_time(value) if isinstance(value, str) else None
    if found is None:
        raise _Impossible
    return str(value) if found <= now + CLOCKS_DIFFER else str(time_text(now))


def _consistent(snapshot: Snapshot, status: Json) -> Json:
    """The status without revisions that do not exist. scaledown.py drops pods that do not exist."""
    known = _known(snapshot, status)
    active, rollout, traffic = status.get("activeRevision"), status.get("rollout"), status.get("traffic")
    if active is not None and active not in known:
        del status["activeRevision"]
    if rollout and not {rollout[side] for side in ("blue", "green") if side in rollout} <= known:
        del status["rollout"]
    if status.get("autoscaling", {}).get("desiredReplicas", 0) > MOST_REPLICAS:
        del status["autoscaling"]
    if traffic:
        weights = {item["revision"]: item["weight"] for item in traffic.get("weights", ())}
        if sum(weights.values()) != 100 or not weights.keys() <= known:
            del status["traffic"]
    return status


def _known(snapshot: Snapshot, status: Json) -> set[str]:
    """Revisions that exist, and those that the spec asks for."""
    known = {*snapshot.records, *snapshot.deployments}
    override, spec = parse_override(status), snapshot.endpoint.spec
    if spec is not None:
        known.add(revision_hash(spec))
        if override is not None:
            known.add(revision_hash(spec, override.salt))
    return known
