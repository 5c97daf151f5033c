"""Values of fields that a record does not contain. Records are never filled from the API's own defaults:
those may change in any release, and running pods must not change.

Records of templates 1 and 2 omit fields that had their default; the values here are the defaults of that
time. Later records contain every field that existed when they were made. Whoever adds a field that affects
pods adds it here with the value that renders existing pods unchanged (a test requires it). Existing lines
must never change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

INPUTS: Mapping[str, Any] = {
    "model.servedNames": [],
    "model.cache": None,
    "model.cache.scope": "Shared",
    "model.credentials": None,
    "model.allowPickle": False,
    "runtime": {},
    "runtime.name": "llmendpoint",
    "runtime.image": None,
    "runtime.args": [],
    "runtime.env": [],
    "runtime.env[].value": "",
    "resources": {},
    "resources.accelerator": None,
    "resources.accelerator.count": 1,
    "resources.accelerator.product": None,
    "resources.accelerator.memory": None,
    "resources.cpu": None,
    "resources.memory": None,
    "resources.nodeSelector": None,
    "resources.tolerations": [],
    "resources.tolerations[].key": None,
    "resources.tolerations[].operator": "Equal",
    "resources.tolerations[].value": None,
    "resources.tolerations[].effect": None,
    "engine": {},
    "engine.device": "auto",
    "engine.dtype": "auto",
    "engine.quantization": None,
    "engine.maxModelLen": None,
    "engine.maxNumSeqs": None,
    "engine.maxQueuedRequests": None,
    "engine.kvCacheMemory": None,
    "engine.kvCacheDtype": None,
    "engine.prefixCaching": True,
    "engine.maxAdapters": 8,
    "engine.maxAdapterRank": 16,
    "adapters": [],
    "progressDeadlineSeconds": 600,
    "terminationGracePeriodSeconds": 60,
}
"""For an endpoint's inputs."""

RUNTIME: Mapping[str, Any] = {
    "command": [],
    "args": [],
    "args[].when": None,
    "ports": {},
    "ports.http": 8000,
    "probes": {},
    "probes.startup": {},
    "probes.startup.path": "/ready",
    "probes.ready": {},
    "probes.ready.path": "/ready",
    "probes.live": {},
    "probes.live.path": "/health",
    "paths": [],
    "readiness": "Native",
    "loadsAdapters": False,
    "stuckAfterSeconds": 120,
    "probeImage": None,
    "modelImage": None,
    "env": [],
    "env[].value": "",
    "volumes": [],
    "volumeMounts": [],
    "volumeMounts[].subPath": None,
    "volumeMounts[].readOnly": False,
}
"""For an LLMRuntime."""


def filled(recorded: Mapping[str, Any], defaults: Mapping[str, Any]) -> Json:
    """The record with every field filled in. `[]` in a path means each item of a list."""
    found = copy.deepcopy(dict(recorded))
    for path, value in defaults.items():
        *way, name = path.split(".")
        for place in _places(found, way):
            place.setdefault(name, copy.deepcopy(value))
    return found


def stripped(full: Mapping[str, Any], defaults: Mapping[str, Any]) -> Json:
    """The record without fields that have these defaults, as templates 1 and 2 stored and hashed it."""
    found = copy.deepcopy(dict(full))
    for path in sorted(defaults, key=lambda path: -path.count(".")):
        *way, name = path.split(".")
        for place in _places(found, way):
            if name in place and place[name] == defaults[path]:
                del place[name]
    return found


def _places(root: Json, way: list[str]) -> Iterator[Json]:
    """The existing objects at the end of the path."""
    found: list[Any] = [root]
    for step in way:
        each, name = step.endswith("[]"), step.removesuffix("[]")
        below = [item.get(name) for item in found if isinstance(item, dict)]
        found = [one for item in below for one in (item if each and isinstance(item, list) else [item])]
    return (item for item in found if isinstance(item, dict))
