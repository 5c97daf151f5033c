"""The writes for an endpoint's pods, and for what is made for each of its revisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Apply, Delete, Event, Step
from ..names import NO_REVISION, child_name
from .builders import (
    make_controller_revision,
    make_headless_service,
    make_service,
    make_service_account,
)
from .deployment import make_deployment
from .drift import first_difference, with_additions
from .manifests import Manifest, Owner
from .revision import ADDITIONS_JUDGED, Revision, revision_data


@dataclass(frozen=True, slots=True)
class Children:
    """Of `owner`, the endpoint of `snapshot`. `target`: the revision that the spec asks for, None if it cannot be made;
    `number`: of its ControllerRevision. `replicas`: the wanted count of each revision that has, or will get, a Deployment.
    `pruned`: revisions beyond the history limit."""

    owner: Owner
    snapshot: Snapshot
    target: Revision | None
    number: int
    replicas: Mapping[str, int]
    pruned: tuple[str, ...]

    def service_account(self) -> Iterator[Step]:
        """Write the pods' ServiceAccount if it differs."""
        wanted = make_service_account(self.owner)
        if first_difference(wanted, self.snapshot.service_account) is not None:
            yield Apply(wanted, _restored(wanted, self.snapshot.service_account))

    def deployments(self) -> tuple[list[Step], list[Step]]:
        """Write the Deployments that differ: those that are new or grow, and those that shrink."""
        grow: list[Step] = []
        shrink: list[Step] = []
        deadline = (
            self.snapshot.endpoint.spec.progress_deadline_seconds if self.snapshot.endpoint.spec else None
        )
        for revision in self._rendered():
            count = self.replicas[revision.hash]
            wanted = make_deployment(self.owner, revision, count, deadline)
            live = self.snapshot.deployments.get(revision.hash)
            if revision.template_version < ADDITIONS_JUDGED and live is not None:
                wanted["spec"]["template"] = with_additions(
                    wanted["spec"]["template"], live["spec"]["template"]
                )
            difference = first_difference(wanted, live)
            if difference is None:
                continue
            shrinks = live is not None and count < int(live["spec"].get("replicas", 1))
            event = (
                _scaled(revision.hash, count, live)
                if difference == "spec.replicas"
                else _restored(wanted, live, difference)
            )
            (shrink if shrinks else grow).append(Apply(wanted, event))
        return grow, shrink

    def records(self) -> Iterator[Step]:
        """The ControllerRevisions. The target's is written if it is new or asked for again; others stay
        unchanged."""
        target = self.target
        for revision in self._rendered():
            live = self.snapshot.records.get(revision.hash)
            is_target = target is not None and revision.hash == target.hash
            data = live["data"] if live is not None else revision_data(revision)
            number = self.number if is_target or live is None else int(live.get("revision", 0))
            wanted = make_controller_revision(self.owner, revision.hash, number, data)
            if live is None:
                yield Apply(wanted, Event("RevisionCreated", f"revision {revision.hash} is starting"))
            elif first_difference(wanted, live) is not None:
                reused = number != int(live.get("revision", 0))
                yield Apply(
                    wanted,
                    Event("RevisionReused", f"revision {revision.hash} is starting again")
                    if reused
                    else None,
                )

    def headless_services(self) -> Iterator[Step]:
        """Write each revision's headless Service if it differs."""
        for revision in self._rendered():
            wanted = make_headless_service(self.owner, revision)
            live = self.snapshot.services.get(wanted["metadata"]["name"])
            if first_difference(wanted, live) is not None:
                yield Apply(wanted, _restored(wanted, live))

    def service(self, active: str | None) -> Iterator[Step]:
        """Write the plain Service if it differs. This step follows the status, which sets `active`."""
        wanted = make_service(self.owner, active or NO_REVISION)
        if first_difference(wanted, self.snapshot.services.get(self.owner.name)) is not None:
            yield Apply(wanted)

    def prune(self) -> Iterator[Step]:
        """Delete old revisions beyond the history limit."""
        endpoint = self.snapshot.endpoint
        for hash_ in self.pruned:
            name = child_name(endpoint.name, hash_)
            if hash_ in self.snapshot.deployments:
                yield Delete("apps/v1", "Deployment", endpoint.namespace, name)
            if name in self.snapshot.services:
                yield Delete("v1", "Service", endpoint.namespace, name)
            if hash_ in self.snapshot.records:
                event = Event("RevisionPruned", f"revision {hash_} is beyond spec.revisionHistoryLimit")
                yield Delete("apps/v1", "ControllerRevision", endpoint.namespace, name, event)

    def _rendered(self) -> Iterator[Revision]:
        """Revisions whose children are kept as recorded: the target, the active one, and existing old ones."""
        for hash_ in sorted(self.replicas):
            if self.target is not None and hash_ == self.target.hash:
                yield self.target
            elif hash_ in self.snapshot.revisions and hash_ not in self.pruned:
                yield self.snapshot.revisions[hash_]


def _scaled(hash_: str, count: int, live: Manifest | None) -> Event | None:
    if live is None:
        return None
    return Event("RevisionScaled", f"revision {hash_}: replicas {live['spec'].get('replicas', 1)} -> {count}")


def _restored(wanted: Manifest, live: Manifest | None, difference: str | None = None) -> Event | None:
    """The Event for a child that was changed by another writer; None if the child is new."""
    if live is None:
        return None
    where = difference or first_difference(wanted, live)
    return Event(
        "ChildRestored", f"{wanted['kind']} {wanted['metadata']['name']}: {where} put back", "Warning"
    )
