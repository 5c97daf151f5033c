"""Who changed a spec, and what followed: one Event and one log line for each change that the operator
processed.

A change is processed when `status.observedGeneration` changes. One leader writes that once, so a restart
repeats nothing. `metadata.managedFields` names the writer. The changed fields come from a comparison with the
spec before or, after a restart, with the recorded inputs of the previous revision. The Event shows old and
new values of scalar fields; the log shows only their paths. Values of environment variables, arguments,
credentials and verifications are never shown, because they may be secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..pods.manifests import Manifest
from ..pods.revision import normalised_inputs
from .snapshot import Snapshot
from .steps import Event

PATHS_SHOWN = 12
VALUE_SHOWN = 48
"""Characters of one value that are shown."""
_NEVER_SHOWN = ("runtime.env", "runtime.args", "model.credentials", "rollout.verification")
_KEYS = ("name", "revision", "type", "key")
"""Fields that identify the items of a list."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a spec. `fields` is None if the spec before is unknown."""

    generation: int
    before: int | None
    """The generation that was processed last; None for a new endpoint."""
    manager: str
    operation: str
    at: str | None
    """The time, if the API server recorded it."""
    fields: tuple[str, ...] | None
    revision: str | None
    model: str
    accelerator: str
    replicas: int | None
    values: Mapping[str, str] = field(default_factory=dict)
    """Old and new value by path, where both may be shown."""

    def event(self) -> Event:
        """The Event for `kubectl describe`."""
        what = "created" if self.before is None else f"changed {_listed(self.fields, self.values)}"
        when = f" at {self.at}" if self.at else ""
        made = f"revision {self.revision or 'none'}, model {self.model}, accelerator {self.accelerator}"
        said = f"generation {self.generation}: {self.manager} ({self.operation}) {what}{when}; {made}"
        return Event("SpecChanged", said)

    def as_log(self) -> dict[str, Any]:
        """The fields of the log line."""
        return {
            "generation": self.generation, "generation_before": self.before, "manager": self.manager,
            "operation": self.operation, "changed_at": self.at,
            "fields": list(self.fields) if self.fields is not None else None, "revision": self.revision,
            "model": self.model, "accelerator": self.accelerator, "replicas": self.replicas,
        }  # fmt: skip


def find_change(
    snapshot: Snapshot, manifest: Manifest, status: Mapping[str, Any], before: Manifest | None
) -> Change | None:
    """The change that the new `status` has processed; None if the spec is unchanged. `manifest` is the
    endpoint with its managedFields. `before`: its manifest at the previous generation, if known."""
    endpoint = snapshot.endpoint
    observed = endpoint.status.get("observedGeneration")
    if observed == endpoint.generation:
        return None
    changes = _changes(snapshot, manifest.get("spec") or {}, before)
    fields = None if changes is None else tuple(path for path, _, _ in changes)
    entry = last_writer(_managers(manifest), _managers(before) if before else (), fields)
    spec, target = endpoint.spec, status.get("targetRevision")
    accelerator = spec.resources.accelerator if spec else None
    return Change(
        generation=endpoint.generation,
        before=observed,
        manager=str(entry.get("manager", "unknown")),
        operation=str(entry.get("operation", "unknown")),
        at=entry.get("time"),
        fields=fields,
        revision=target,
        model=model_identity(snapshot.records.get(str(target))) or (spec.model.source if spec else "unknown"),
        accelerator=f"{accelerator.count} x {accelerator.kind}" if accelerator else "none",
        replicas=spec.replicas if spec else None,
        values={path: shown for path, old, new in changes or () if (shown := _shown(path, old, new))},
    )


def last_writer(
    managers: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]] = (),
    fields: tuple[str, ...] | None = None,
) -> Mapping[str, Any]:
    """The managedFields entry of the last writer, status writes excluded; empty if unknown. Entries that are
    not in `before` win, because times are whole seconds and the API server sets none for the scale
    subresource. Scaling again leaves its entry unchanged, so a change of `replicas` alone counts as the
    scaler's."""
    writers = [entry for entry in managers if entry.get("subresource") in (None, "", "scale")]
    fresh = [entry for entry in writers if entry not in before]
    scalers = [entry for entry in writers if entry.get("subresource") == "scale"]
    likely = fresh or (scalers if fields == ("replicas",) else []) or writers
    return max(likely, key=lambda entry: str(entry.get("time", "")), default={})


def _managers(manifest: Manifest) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = manifest["metadata"].get("managedFields") or ()
    return found


def model_identity(record: Manifest | None) -> str | None:
    """The revision's model source with the commit that it was resolved to, if one was recorded."""
    data = (record or {}).get("data") or {}
    commit, source = data.get("modelCommit"), data.get("inputs", {}).get("model", {}).get("source")
    return f"{str(source).partition('@')[0]}@{commit}" if commit else None


def changed_values(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Paths of the fields that differ, with the values before and after; None for a missing value. List items
    are matched by one of _KEYS if they have it."""
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from changed_values(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return
    pairs = _by_key(old, new)
    if pairs is None:
        yield path, old, new
        return
    for name, (before, after) in pairs.items():
        yield from changed_values(before, after, f"{path}[{name}]")


def _by_key(old: Any, new: Any) -> dict[str, tuple[Any, Any]] | None:
    """Two lists of objects as pairs with the same key; None if they cannot be matched."""
    lists = [items if items is not None else [] for items in (old, new)]
    if not all(isinstance(items, list) for items in lists):
        return None
    for key in _KEYS:
        found = [{str(i[key]): i for i in items if isinstance(i, Mapping) and key in i} for items in lists]
        if all(len(one) == len(items) for one, items in zip(found, lists, strict=True)) and any(found):
            return {name: (found[0].get(name), found[1].get(name)) for name in sorted({*found[0], *found[1]})}
    return None


def _changes(
    snapshot: Snapshot, spec: Mapping[str, Any], before: Manifest | None
) -> tuple[tuple[str, Any, Any], ...] | None:
    if before is not None:
        return tuple(changed_values(before.get("spec") or {}, spec))
    endpoint = snapshot.endpoint
    revision = snapshot.revisions.get(str(endpoint.status.get("targetRevision")))
    if revision is None or endpoint.spec is None:
        return None
    return tuple(changed_values(normalised_inputs(revision.inputs), normalised_inputs(endpoint.spec))) or None


def _shown(path: str, old: Any, new: Any) -> str:
    """Old and new value of a scalar field; empty if they may not be shown."""
    single = all(value is None or isinstance(value, str | int | float) for value in (old, new))
    return "" if path.startswith(_NEVER_SHOWN) or not single else f"{_text(old)} -> {_text(new)}"


def _text(value: Any) -> str:
    text = "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= VALUE_SHOWN else text[: VALUE_SHOWN - 1] + "…"


def _listed(fields: tuple[str, ...] | None, values: Mapping[str, str]) -> str:
    if fields is None:
        return "unknown fields, because the operator did not run before"
    more = f" and {len(fields) - PATHS_SHOWN} more" if len(fields) > PATHS_SHOWN else ""
    told = (f"{path} ({values[path]})" if path in values else path for path in fields[:PATHS_SHOWN])
    return ", ".join(told) + more if fields else "nothing that the operator reads"
