"""Which pods load adapters, and what each is to have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...core.adapters.moves import Wanted
from ...core.adapters.reported import loadable
from ...core.endpoint.snapshot import Snapshot
from ...core.pods.state import engine_status
from ..targets import targets_of


@dataclass(frozen=True, slots=True)
class Job:
    """A ready pod, and the adapters that it is to have. `run`: the pod and its engine's run; with a new run everything that
    was loaded is gone."""

    name: str
    url: str
    run: tuple[str, int]
    wanted: tuple[Wanted, ...]


def jobs_of(snapshot: Snapshot) -> Iterator[Job]:
    """One for each ready pod whose revision loads adapters, of whatever revision: an old one answers until it is drained."""
    spec = snapshot.endpoint.spec
    if spec is None or snapshot.endpoint.deleting:
        return
    for hash_, revision in snapshot.revisions.items():
        wanted = loadable(revision, spec.adapters)
        if wanted is None:
            continue
        runs = {pod["metadata"]["name"]: _run(pod) for pod in snapshot.pods.get(hash_, ())}
        for target in targets_of(snapshot, [hash_]):
            if target.ready:
                yield Job(target.name, target.url, (target.uid, runs[target.name]), wanted)


def _run(pod: dict[str, object]) -> int:
    count = engine_status(pod).get("restartCount", 0)
    return count if isinstance(count, int) else 0
