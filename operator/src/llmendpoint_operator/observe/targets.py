"""Which pods of an endpoint can be asked, and their URLs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..core.endpoint.snapshot import Snapshot
from ..core.pods.state import is_alive, is_ready


@dataclass(frozen=True, slots=True)
class Target:
    """A running pod and the base URL of its engine."""

    name: str
    uid: str
    revision: str
    url: str
    ready: bool = True


def active_targets(snapshot: Snapshot) -> list[Target]:
    """Ready pods of the active revision."""
    active = snapshot.endpoint.status.get("activeRevision")
    return [target for target in targets_of(snapshot, (active,)) if target.ready]


def targets_of(snapshot: Snapshot, revisions: Iterable[str | None]) -> Iterator[Target]:
    """Pods of these revisions that can be asked: alive, with an address."""
    for hash_ in dict.fromkeys(revisions):
        revision = snapshot.revisions.get(hash_) if hash_ else None
        if hash_ is None or revision is None:
            continue
        for pod in snapshot.pods.get(hash_, ()):
            address = pod.get("status", {}).get("podIP")
            if address and is_alive(pod):
                metadata = pod["metadata"]
                url = base_url(address, revision.runtime.ports.http)
                yield Target(metadata["name"], metadata.get("uid", ""), hash_, url, is_ready(pod))


def base_url(address: str, port: int) -> str:
    """Base URL of a pod. IPv6 addresses are written in brackets."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
