"""The condition CapacityFits. The first row that applies wins:

| model | accelerator | status | reason |
|---|---|---|---|
| - | the spec asks for none | no condition | |
| not yet known | - | as before, else Unknown | `ModelBeingRead` |
| cannot be known | - | Unknown | `ModelNotReadable` |
| its weights are quantized in a way that the runtime does not load | - | False | `QuantizedWeights` |
| known | not yet known | as before, else Unknown | `AcceleratorUnknown` |
| known | unknown | Unknown | `AcceleratorUnknown` |
| known | some of the selected nodes fit | Unknown | `DependsOnNode` |
| known | all fit | True | `Fits`, `FitsFewerSequences`, `FitsShorterContext` |
| known | none fits | False | `WeightsTooLarge`, `ContextTooLong`, `KVCacheTooLarge`, `NotDivisible` |

It only warns: a wrong estimate must not keep a model from being served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmendpoint_fit.core.accelerators import ACCELERATORS
from llmendpoint_fit.core.devices import Device, Wanted, parse_wanted, said
from llmendpoint_fit.core.engines import DRAFT_FLAG, draft_of, parse_load, reads, splits
from llmendpoint_fit.core.memory import Load
from llmendpoint_fit.core.model import Model
from llmendpoint_fit.core.text import QUANTIZED, change_text, fit_text
from llmendpoint_fit.core.verdict import Outcome, Question, evaluate, loads, what_would_fit

from ...api import LLMEndpointSpec
from ..endpoint.conditions import Condition
from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Event
from ..pods.revision import Revision
from .findings import Finding, hub_model_of, inspected, on_claim, recorded

TYPE = "CapacityFits"
UNCOUNTED = f"; the model of {DRAFT_FLAG} is not counted: `kubectl llm plan -f` counts it"
KNOWN = ", ".join(accelerator.name for accelerator in ACCELERATORS)


@dataclass(frozen=True, slots=True)
class Outlook:
    """`record`: the new `status.capacity`. `keeps`: the condition in the status stays unchanged. `events`:
    the warning that the model does not fit."""

    record: Mapping[str, Any] | None = None
    condition: Condition | None = None
    keeps: bool = False
    events: tuple[Event, ...] = ()


def look(snapshot: Snapshot, target: Revision | None) -> Outlook:
    """The outlook for the revision that the spec asks for."""
    status, spec = snapshot.endpoint.status, snapshot.endpoint.spec
    if spec is None or (target is None and spec.resources.accelerator is not None):
        return Outlook(status.get("capacity"), keeps=True)
    if target is None or target.inputs.resources.accelerator is None:
        return Outlook()
    finding = recorded(status, target.hash) or _found(snapshot, target)
    if finding is None:
        return Outlook(status.get("capacity"), _unknown("ModelBeingRead", f"{_source(target)} is being read"))
    record = finding.as_json(target.hash)
    if finding.model is None:
        hint = "`kubectl llm plan` reads a local copy of it"
        return Outlook(record, _unknown("ModelNotReadable", f"{finding.problem}; {hint}"))
    return _judged(snapshot, spec, target, finding.model, record)


def _source(target: Revision) -> str:
    return target.inputs.model.source


def _found(snapshot: Snapshot, target: Revision) -> Finding | None:
    """What was found out about the model since the last status; None while that is in progress."""
    known = snapshot.observed.capacity
    if hub_model_of(target) is not None:
        return known.finding
    if on_claim(target) is None:
        return Finding(problem=f"{_source(target)} lies where only the engine's pods read it")
    if known.refused:
        return Finding(problem=f"the API server refuses the Job that reads the model: {known.refused}")
    if known.image is None:
        return Finding(
            problem="the operator was started without --probe-image, the image of the Job that reads a claim"
        )
    return inspected(known.job, known.pods) if known.job is not None else None


def _judged(
    snapshot: Snapshot, spec: LLMEndpointSpec, target: Revision, model: Model, record: Mapping[str, Any]
) -> Outlook:
    inputs = target.inputs.model_dump(mode="json", by_alias=True, exclude_none=True)
    load, wanted = parse_load(inputs), _wanted(spec, inputs)
    read = reads(inputs)
    if not loads(model, read):
        return Outlook(record, Condition(TYPE, "False", Outcome.QUANTIZED.value, QUANTIZED))
    divides = splits((*(a.value for a in target.runtime.args), *target.inputs.runtime.args))
    stated = said(wanted)
    nodes = snapshot.observed.capacity.devices
    devices: Sequence[Device | None] | None = (stated,) if stated is not None else nodes
    if wanted.product is not None and stated is None:
        hint = f"known are {KNOWN}; or give resources.accelerator.memory, such as 24Gi"
        return Outlook(
            record, _unknown("AcceleratorUnknown", f"resources.accelerator.product {wanted.product}: {hint}")
        )
    if devices is None:
        again = recorded(snapshot.endpoint.status, target.hash) is not None
        return Outlook(record, _unknown("AcceleratorUnknown", "the nodes are being read"), keeps=again)
    known = tuple(device for device in devices if device is not None)
    if not known:
        return Outlook(record, _unknown("AcceleratorUnknown", _what_to_write(wanted)))
    condition = _verdict(model, load, wanted, divides, read, devices)
    if draft_of(inputs) is not None:
        condition = replace(condition, message=condition.message + UNCOUNTED)
    return Outlook(record, condition, events=_events(snapshot, condition))


def _wanted(spec: LLMEndpointSpec, inputs: Mapping[str, Any]) -> Wanted:
    """The revision's accelerators, with the product and memory that the spec states for that kind now."""
    found = parse_wanted(inputs)
    assert found is not None, "the caller has looked"
    now = parse_wanted(spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    if now is None or now.kind != found.kind:
        return found
    return replace(found, product=now.product, memory=now.memory)


def _what_to_write(wanted: Wanted) -> str:
    return (
        f"what memory one {wanted.kind} has is not known: write resources.accelerator.product (one of {KNOWN}) or "
        f"resources.accelerator.memory (such as 24Gi), or let the nodes say so (label nvidia.com/gpu.product)"
    )


def _verdict(
    model: Model,
    load: Load,
    wanted: Wanted,
    divides: bool,
    read: frozenset[str] | None,
    devices: Sequence[Device | None],
) -> Condition:
    """The condition for the node that fits worst among those that may be selected."""
    count = wanted.count if divides else 1
    unused = f"; the engine uses one of the {wanted.count} accelerators" if count < wanted.count else ""
    asked = {d: Question(model, load, d.memory, count, divides, read) for d in devices if d is not None}
    fits = {device: evaluate(question) for device, question in asked.items()}
    bad = [device for device, fit in fits.items() if not fit.outcome.serves]
    good = [device for device, fit in fits.items() if fit.outcome.serves]
    worst = bad[0] if bad else min(good, key=lambda device: (fits[device].sequences, device))
    text = f"{count} x {worst.title}: {fit_text(fits[worst], load.sequences)}{unused}"
    if bad and not good and None not in devices:
        changes = [change_text(change) for change in what_would_fit(asked[worst], wanted.kind)]
        would = "; what would fit, each by itself: " + ", or ".join(changes) if changes else ""
        return Condition(TYPE, "False", fits[worst].outcome.value, text + would)
    if bad or None in devices:
        others = ", ".join(device.title for device in good) or "none that is known"
        hint = "select nodes by resources.nodeSelector, such as nvidia.com/gpu.product"
        unsaid = "; some nodes do not say what they have" if None in devices else ""
        return _unknown("DependsOnNode", f"fits on: {others}{unsaid}; {text}; {hint}")
    return Condition(TYPE, "True", fits[worst].outcome.value, text)


def _events(snapshot: Snapshot, condition: Condition) -> tuple[Event, ...]:
    """A warning when the condition turns False."""
    conditions = snapshot.endpoint.status.get("conditions") or ()
    told = any(c["type"] == TYPE and c["status"] == "False" for c in conditions)
    if condition.status != "False" or told:
        return ()
    return (Event("CapacityTooSmall", condition.message, "Warning"),)


def _unknown(reason: str, message: str) -> Condition:
    return Condition(TYPE, "Unknown", reason, message)
