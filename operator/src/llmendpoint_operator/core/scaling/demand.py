"""The load of an endpoint, as the gateways report it. Missing reports are unknown, and never count as 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .circuit import Circuit

NEARLY_FULL = 0.8
"""Share of the KV cache in use (0..1) from which a request may have to wait for memory."""


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine reported at `read_at`, in seconds of the operator's clock. `kv_usage` is 0..1;
    `max_num_seqs` is 0 if unknown."""

    running: int
    waiting: int
    kv_usage: float
    max_num_seqs: int
    read_at: float = 0.0

    @property
    def queued(self) -> int:
        """Requests that wait because the engine is full. If it has room, a waiting request is about to be
        admitted at the next step and does not count."""
        if self.kv_usage >= NEARLY_FULL or self.max_num_seqs == 0:
            return self.waiting
        return min(self.waiting, max(0, self.running + self.waiting - self.max_num_seqs))


@dataclass(frozen=True, slots=True)
class Reading:
    """One replica as one gateway sees it. `load` is None if the engine has not reported recently."""

    in_flight: int
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One endpoint as one gateway sees it: the number of requests it holds (`waiting`), and replicas by
    pod."""

    waiting: int = 0
    replicas: Mapping[str, Reading] = field(default_factory=dict)
    circuit: Circuit | None = None


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Recent time to the first token of the present replicas: 95th percentile in seconds, number of
    requests."""

    p95: float
    requests: int


@dataclass(frozen=True, slots=True)
class Demand:
    """One endpoint as all gateways together see it. `silent` names the gateways (or engines) that did not
    report; the sums may be too low then."""

    waiting: int = 0
    in_flight: Mapping[str, int] = field(default_factory=dict)
    loads: Mapping[str, Load] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    held: bool = True
    """Whether gateways hold and report requests for an endpoint without replicas."""
    circuits: Mapping[str, Circuit] = field(default_factory=dict)
    """The state of the endpoint's breaker, by gateway."""
    first_tokens: FirstTokens | None = None

    @property
    def partial(self) -> bool:
        """Whether some reports are missing."""
        return bool(self.silent)

    @property
    def queued(self) -> int:
        """Requests that wait in a gateway or in a full replica."""
        return self.waiting + sum(load.queued for load in self.loads.values())

    @property
    def requests(self) -> int:
        """Requests that wait or run. For each replica the larger of the gateways' count and the engine's,
        because not every caller uses the gateway."""
        pods = {*self.in_flight, *self.loads}
        return self.waiting + sum(self._of(pod) for pod in pods)

    def only(self, pods: Collection[str]) -> Demand:
        """The demand on these replicas alone."""
        return Demand(
            self.waiting,
            {pod: count for pod, count in self.in_flight.items() if pod in pods},
            {pod: load for pod, load in self.loads.items() if pod in pods},
            self.silent,
            self.held,
            first_tokens=self.first_tokens,
        )

    def _of(self, pod: str) -> int:
        load = self.loads.get(pod)
        return max(self.in_flight.get(pod, 0), load.running + load.waiting if load else 0)


def combine(reports: Mapping[str, Report | None]) -> Demand | None:
    """Combines reports by gateway (None for a silent one). Returns None if all are silent or there is none.
    Requests are summed. All gateways read the same loads, so the latest reading of each replica counts."""
    told = {gateway: report for gateway, report in reports.items() if report is not None}
    if not told:
        return None
    in_flight: dict[str, int] = {}
    loads: dict[str, Load] = {}
    for report in told.values():
        for pod, reading in report.replicas.items():
            in_flight[pod] = in_flight.get(pod, 0) + reading.in_flight
            known = loads.get(pod)
            if reading.load is not None and (known is None or reading.load.read_at > known.read_at):
                loads[pod] = reading.load
    silent = tuple(sorted(reports.keys() - told.keys()))
    circuits = {gateway: report.circuit for gateway, report in told.items() if report.circuit is not None}
    return Demand(
        sum(report.waiting for report in told.values()), in_flight, loads, silent, circuits=circuits
    )
