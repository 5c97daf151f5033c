"""How many requests ended at each replica, and how many of them failed there: the counts by replica in `/revisions`.

They tell whether one replica has most of a revision's failures. Envoy's own counters, by revision, are the exact ones:
Envoy does not count by replica, because its counters of a replica that is gone would stay for ever. Both count attempts
and call the same ones errors (core/envoy/upstream_logs.py). But the picker sees an attempt that succeeds only as the end
of its request, so these differ from Envoy's:

| what happens | here | Envoy |
|---|---|---|
| the client leaves before the first byte, or Envoy makes no attempt | a request | nothing |
| a retry is over before the report of the first attempt is here | one attempt, at the first replica; if the retry failed as well, its error is left out if its replica has no request to go with it | two attempts |
| Envoy drops a report, because the picker reads too slowly | no error | an error |
| a replica leaves the view, or the picker starts anew | its counts are gone | they stay |
"""

from collections.abc import Collection, Iterable

from llmendpoint_gateway.core.endpoint.objects import Replica
from llmendpoint_gateway.core.endpoint.view import Part, View
from llmendpoint_gateway.core.placement.routing import cluster_name

MOST_REPLICAS = 50
"""Of one revision, in one answer."""

Place = tuple[str, str]
"""Cluster and address."""


class Tally:
    """Of one pod."""

    __slots__ = ("errors", "pod", "requests")

    def __init__(self, pod: str) -> None:
        self.pod = pod
        self.requests = self.errors = 0


class Tallies:
    """Of the replicas in the view, and of no other."""

    def __init__(self) -> None:
        self._of: dict[Place, Tally] = {}

    def __len__(self) -> int:
        return len(self._of)

    def change(self, before: View, after: View, keys: Collection[str]) -> None:
        """Apply the change of these endpoints. A pod that takes over another's address begins at 0."""
        for key in keys:
            pods = _pods(key, after.part(key))
            for place in _pods(key, before.part(key)).keys() - pods.keys():
                del self._of[place]
            for place, pod in pods.items():
                known = self._of.get(place)
                if known is None or known.pod != pod:
                    self._of[place] = Tally(pod)

    def request(self, cluster: str, address: str) -> None:
        """An attempt at this replica has ended."""
        tally = self._of.get((cluster, address))
        if tally is not None:
            tally.requests += 1

    def error(self, cluster: str, address: str) -> None:
        """An attempt at this replica failed; `request` counts it as well, before or after."""
        tally = self._of.get((cluster, address))
        if tally is not None:
            tally.errors += 1

    def read(self, cluster: str, replicas: Iterable[Replica]) -> dict[str, dict[str, int]]:
        """Pod -> {"requests", "errors"}, of the first MOST_REPLICAS by name. Errors are never more than the requests."""
        found = sorted((replica.pod, replica.address) for replica in replicas)[:MOST_REPLICAS]
        return {
            pod: {"requests": tally.requests, "errors": min(tally.errors, tally.requests)}
            for pod, address in found
            if (tally := self._of[cluster, address]).pod == pod  # not one whose address another pod has now
        }


def _pods(key: str, part: Part) -> dict[Place, str]:
    return {
        (cluster_name(key, revision), replica.address): replica.pod
        for revision, replicas in part.revisions.items()
        for replica in replicas
    }
