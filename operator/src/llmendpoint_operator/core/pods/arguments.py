"""Renders an engine's arguments from a runtime's list: `$(path)` is replaced by a field; with `when` an
argument is included only if that field is set (or, after `!`, not set)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...api import Argument, ModelSpec, PodInputs
from ...errors import SpecError
from ..models.files import engine_path
from ..models.identity import HUB, split_hub
from ..names import DRAIN_MARGIN_SECONDS, PRE_STOP_SECONDS

Fields = Mapping[str, Any]

_REFERENCE = re.compile(r"\$\(([A-Za-z][A-Za-z.]*)\)")


def split_pvc(source: str) -> tuple[str, str] | None:
    """(claim, path inside it) of `pvc://claim/path`; None for any other source."""
    if not source.startswith("pvc://"):
        return None
    claim, _, path = source.removeprefix("pvc://").partition("/")
    return claim, path.strip("/")


def model_path(model: ModelSpec, commit: str = "", hub: str = "") -> str:
    """The model that the engine is told to load: a claim's path as mounted, the folder of a downloaded model,
    a hub's model without its branch; any other source unchanged."""
    return engine_path(model, commit, hub) or _source_path(model.source)


def _source_path(source: str) -> str:
    public = split_hub(source)
    if public is not None:
        return f"{HUB}{public.repository}"
    found = split_pvc(source)
    if found is None:
        return source
    claim, path = found
    return f"/models/{claim}/{path}".rstrip("/")


def served_names(namespace: str, name: str, inputs: PodInputs) -> list[str]:
    """Bare names first, then `namespace/name`. Responses carry the first name."""
    return [*(inputs.model.served_names or [name]), f"{namespace}/{name}"]


def drain_seconds(inputs: PodInputs) -> int:
    """Seconds for streams after SIGTERM: the grace period less the preStop sleep and a margin to exit."""
    return inputs.termination_grace_period_seconds - PRE_STOP_SECONDS - DRAIN_MARGIN_SECONDS


def field_values(
    namespace: str, name: str, inputs: PodInputs, http_port: int, commit: str = "", hub: str = ""
) -> Fields:
    """Every field that an argument may refer to; None for a field that the endpoint does not set."""
    engine = inputs.engine.model_dump(mode="json", by_alias=True)
    accelerator = inputs.resources.accelerator
    downloaded = engine_path(inputs.model, commit, hub)
    return {
        "namespace": namespace,
        "name": name,
        "model.source": inputs.model.source,
        "model.path": downloaded or _source_path(inputs.model.source),
        "model.revision": (commit or None) if downloaded is None else None,
        "model.servedNames": served_names(namespace, name, inputs),
        "ports.http": http_port,
        "drainSeconds": drain_seconds(inputs),
        "adapters": bool(inputs.adapters),
        "accelerator.count": accelerator.count if accelerator else None,
        **{f"engine.{key}": value for key, value in engine.items()},
    }


def render_arguments(arguments: Sequence[Argument], fields: Fields) -> list[str]:
    """The command line. Raises SpecError with the index of the argument that cannot be rendered."""
    found: list[str] = []
    for index, argument in enumerate(arguments):
        where = f"LLMRuntime spec.args[{index}]"
        if argument.when is None or _holds(argument.when, fields, where):
            found += _expand(argument.value, fields, where)
    return found


def _holds(when: str, fields: Fields, where: str) -> bool:
    value = _lookup(when.removeprefix("!"), fields, f"{where}.when")
    is_set = value is not None and value is not False and value != "" and value != []
    return is_set != when.startswith("!")


def _lookup(path: str, fields: Fields, where: str) -> Any:
    if path not in fields:
        raise SpecError(where, f"{path!r} is not a field; known are {', '.join(sorted(fields))}")
    return fields[path]


def _expand(template: str, fields: Fields, where: str) -> list[str]:
    values = {path: _lookup(path, fields, f"{where}.value") for path in _REFERENCE.findall(template)}
    for path, value in values.items():
        if value is None:
            raise SpecError(f"{where}.value", f"the endpoint does not set {path!r}; add `when: {path}`")
    lists = [path for path, value in values.items() if isinstance(value, list)]
    if len(lists) > 1:
        raise SpecError(
            f"{where}.value", f"names two lists, {' and '.join(lists)}; one argument may name one"
        )
    choices = [{**values, lists[0]: item} for item in values[lists[0]]] if lists else [values]
    return [_substitute(template, choice) for choice in choices]


def _substitute(template: str, values: Fields) -> str:
    return _REFERENCE.sub(lambda match: _text(values[match[1]]), template)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
