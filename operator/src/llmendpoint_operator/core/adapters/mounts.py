"""Where an engine finds an adapter, and what a pod must have for that: claims, mounted when it is made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ...api import Adapter

FOLDER = "/models/_adapters"
"""A claim's name has no `_`, so no claim with a model is mounted here."""
_PVC, _FILE = "pvc://", "file://"


def engine_source(source: str) -> str:
    """What the engine is told to load: a folder in the container, or the source itself if the engine downloads it."""
    if source.startswith(_FILE):
        return source.removeprefix(_FILE)
    claim = _claim_of(source)
    if claim is None:
        return source
    path = source.removeprefix(f"{_PVC}{claim}").strip("/")
    return f"{mount_path(claim)}/{path}"


def claims_of(adapters: Iterable[Adapter]) -> list[str]:
    """The claims that a pod must mount for these adapters, sorted."""
    return sorted({claim for one in adapters if (claim := _claim_of(one.source)) is not None})


def can_take(recorded: Iterable[Adapter], wanted: Iterable[Adapter]) -> bool:
    """Whether pods that were made for the recorded adapters can load the wanted ones. Pods made for none cannot: their
    engine has set no memory aside. Pods made for some can always be left with fewer, or with none."""
    recorded, wanted = tuple(recorded), tuple(wanted)
    return not wanted or (bool(recorded) and set(claims_of(wanted)) <= set(claims_of(recorded)))


def mount_path(claim: str) -> str:
    """Where the claim is mounted."""
    return f"{FOLDER}/{claim}"


def volume_name(claim: str) -> str:
    """A volume's name has 63 characters at most, a claim's name up to 253."""
    return f"model-adapters-{hashlib.sha256(claim.encode()).hexdigest()[:12]}"


def _claim_of(source: str) -> str | None:
    return source.removeprefix(_PVC).partition("/")[0] if source.startswith(_PVC) else None
