"""Gathers the Evidence of every endpoint whose rollout needs some. At rest an endpoint has no task; its requests are counted now
and then (intervals.py) if new revisions are compared with the old one.

Each reconciliation calls `update`, which starts to find out what is missing; `of` returns what is known. An
endpoint is woken when something new is known.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace

import structlog

from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.rollout.account import joined
from ...core.rollout.baseline import make_baseline
from ...core.rollout.evidence import Evidence, Figures, Verification, Window
from ...core.rollout.measurements import Measurements
from ...core.rollout.sampling import EARLY_SAMPLE_S, SAMPLE_S, next_sample
from ...core.rollout.wanted import VerificationJob, Wanted, find_wanted
from ..gateways import Gateways
from ..slots import Slots
from ..targets import Target, targets_of
from ..wire import Wire
from .intervals import Intervals
from .measurements import sample
from .prospects import PodEvents
from .verification import Verifier

log = structlog.get_logger()

SLACK_S = 0.01
"""A timer that is early by so much is on time."""
RECENT_S = 600.0
"""Seconds before the switch, at most, over which the old revision is measured for comparison."""
SAMPLES_AT_ONCE = 32
SAMPLES_OF_A_NAMESPACE = 8
PROMPTS_AT_ONCE = 64
PROMPTS_OF_A_NAMESPACE = 4


class Collector:
    """The leader's collector. `wake` queues an endpoint."""

    def __init__(
        self, wire: Wire, gateways: Gateways, wake: Callable[[Key], None], pod_events: PodEvents
    ) -> None:
        self._wire = wire
        self._pod_events = pod_events
        self._gateways = gateways
        self._wake = wake
        self._intervals = Intervals(wire, gateways)
        self._watchers: dict[Key, _Watcher] = {}
        self._samples = Slots(SAMPLES_AT_ONCE, SAMPLES_OF_A_NAMESPACE, spare=SAMPLES_OF_A_NAMESPACE)
        self._prompts = Slots(PROMPTS_AT_ONCE, PROMPTS_OF_A_NAMESPACE)

    def __len__(self) -> int:
        """Number of endpoints with questions in progress."""
        return len(self._watchers)

    def update(self, snapshot: Snapshot) -> None:
        """Start to find out what this endpoint's rollout needs."""
        key = (snapshot.endpoint.namespace, snapshot.endpoint.name)
        self._pod_events.update(snapshot)
        self._intervals.update(snapshot)
        wanted = find_wanted(snapshot)
        if wanted is None:
            self._rest(key)
            return
        self._gateways.follow(key, wanted.epoch)
        watcher = self._watchers.get(key)
        if watcher is None:
            watcher = self._watchers[key] = _Watcher(
                self._wire, self._gateways, self._wake, self._samples, self._prompts, self._watchers
            )
        watcher.update(wanted, tuple(targets_of(snapshot, wanted.asked)))

    def of(self, key: Key) -> Evidence:
        """What is known about an endpoint now."""
        told, watcher = self._pod_events.of(key), self._watchers.get(key)
        if watcher is None:
            return Evidence(told=told)
        views, known = self._gateways.views(key)
        return Evidence(
            views,
            known,
            watcher.verification,
            watcher.figures() if watcher.window is not None else self._baselines(key, watcher),
            watcher.window,
            self._gateways.lost,
            watcher.watched,
            watcher.verifying,
            told,
            len(self._watchers),
        )

    def _baselines(self, key: Key, watcher: _Watcher) -> dict[str, Figures]:
        """Before the switch: of the last minutes, and of the hours at rest."""
        recent = watcher.figures()
        found = {
            revision: make_baseline(self._intervals.of(key, revision), recent.get(revision))
            for revision in watcher.measured
        }
        return {revision: figures for revision, figures in found.items() if figures is not None}

    def forget(self, key: Key) -> None:
        """Drop a deleted endpoint."""
        self._pod_events.forget(key)
        self._intervals.forget(key)
        self._rest(key)

    def _rest(self, key: Key) -> None:
        """End the tasks of an endpoint without a pending decision."""
        self._gateways.forget(key)
        watcher = self._watchers.pop(key, None)
        if watcher is not None:
            watcher.close()

    async def run(self) -> None:
        """Ask the gateways until cancelled; then end all tasks."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._gateways.run())
                group.create_task(self._pod_events.run())
                group.create_task(self._intervals.run())
        finally:
            for key in list(self._watchers):
                self.forget(key)


class _Watcher:
    """The tasks of one endpoint."""

    def __init__(
        self,
        wire: Wire,
        gateways: Gateways,
        wake: Callable[[Key], None],
        samples: Slots,
        prompts: Slots,
        all_watchers: Sized,
    ) -> None:
        self._wire = wire
        self._all = all_watchers
        self._gateways = gateways
        self._wake = wake
        self._samples = samples
        self._prompts = prompts
        self._wanted = Wanted(("", ""))
        self._pods: tuple[Target, ...] = ()
        self._measurements = Measurements(RECENT_S)
        self._carried: dict[str, Figures] = {}
        self._measured_since = self._verifying_since = time.monotonic()
        self._sampler: asyncio.Task[None] | None = None
        self._verifier: asyncio.Task[None] | None = None
        self._asker: Verifier | None = None
        self.verification: Verification | None = None

    def update(self, wanted: Wanted, pods: tuple[Target, ...]) -> None:
        """Start what is needed now, and end what is not."""
        before, self._wanted, self._pods = self._wanted, wanted, pods
        if wanted.window != before.window:
            # What the status says of a window that this watcher saw begin is what it has counted itself.
            fresh = not before.key[1]
            self._carried = _carried(wanted) if fresh else {}
        if (wanted.window, wanted.measured) != (before.window, before.measured):
            self._measured_since = time.monotonic()
        if wanted.window is not None and wanted.window != before.window:
            self._measurements.begin(time.monotonic())
            # At once: what an engine has counted before it is read for the first time is not known to lie in the window.
            _cancel(self._sampler)
            self._sampler = None
        if wanted.measured and self._sampler is None:
            self._sampler = asyncio.create_task(self._sample(), name="sampler")
        elif not wanted.measured:
            _cancel(self._sampler)
            self._sampler = None
            self._measurements = Measurements(RECENT_S)
        if wanted.verification != before.verification:
            _cancel(self._verifier)
            self._verifier = self.verification = self._asker = None
            self._verifying_since = time.monotonic()
            if wanted.verification is not None:
                self._verifier = asyncio.create_task(self._verify(wanted.verification), name="verifier")

    @property
    def window(self) -> Window | None:
        """The window in which `figures` are counted; None before the switch."""
        return self._wanted.window

    @property
    def measured(self) -> tuple[str, ...]:
        """The revisions whose figures are needed."""
        return self._wanted.measured

    @property
    def watched(self) -> float:
        """Seconds for which `figures` have been gathered."""
        return time.monotonic() - self._measured_since

    @property
    def verifying(self) -> float:
        """Seconds for which prompts have been sent, without the time that they waited for a slot."""
        waited = self._asker.waited if self._asker is not None else 0.0
        return max(0.0, time.monotonic() - self._verifying_since - waited)

    def _interval(self, figures: Mapping[str, Figures]) -> float:
        """Seconds until the next sample, after these figures."""
        window = self._wanted.window
        if window is None:
            return SAMPLE_S
        return min(SAMPLE_S, next_sample(self.watched, figures.get(window[0]), len(self._all)))

    def figures(self) -> dict[str, Figures]:
        """Figures by revision: of the window, or without one the recent figures."""
        measured = self._measurements
        read = measured.in_window if self._wanted.window is not None else measured.recent
        found = {revision: read(revision) for revision in self._wanted.measured}
        found |= {
            revision: joined(carried, found.get(revision)) for revision, carried in self._carried.items()
        }
        return {revision: figures for revision, figures in found.items() if figures is not None}

    def close(self) -> None:
        """End all tasks."""
        _cancel(self._sampler)
        _cancel(self._verifier)

    async def _sample(self) -> None:
        """Take samples until cancelled. A failed sample does not stop the next one."""
        engines_read, known = -math.inf, dict[str, Figures]()
        while True:
            began, wanted = time.monotonic(), self._wanted
            try:
                pods: tuple[Target, ...] = ()
                if began - engines_read >= min(SAMPLE_S, EARLY_SAMPLE_S) - SLACK_S:
                    pods = tuple(pod for pod in self._pods if pod.revision in wanted.measured)
                    engines_read = began
                answered = await sample(
                    self._wire,
                    self._gateways,
                    wanted.key,
                    pods,
                    self._measurements,
                    self._samples,
                )
                if answered:
                    self._measurements.sampled(time.monotonic(), self._gateways.exist)
                before, known = known, self.figures()
                if self._wanted.decides and _counted(known) != _counted(before):
                    self._wake(wanted.key)
            except Exception:  # any: engines may answer anything; the next sample is still taken
                log.exception("sample failed", endpoint="/".join(wanted.key))
            await asyncio.sleep(max(0.0, self._interval(known) - (time.monotonic() - began)))

    async def _verify(self, job: VerificationJob) -> None:
        """Run the verification. It starts anew after any error that is not the revision's fault."""
        while True:
            try:
                self._asker = Verifier(self._wire, job, self._ready, self._verified, self._prompts)
                return await self._asker.run()
            except Exception:  # any: an answer may be anything; only this verification starts anew
                log.exception("verification broke off", endpoint=job.model)
                await asyncio.sleep(SAMPLE_S)

    def _ready(self, revision: str) -> Sequence[Target]:
        return [pod for pod in self._pods if pod.revision == revision and pod.ready]

    def _verified(self, found: Verification) -> None:
        if found != self.verification:
            self.verification = found
            self._wake(self._wanted.key)


def _counted(figures: Mapping[str, Figures]) -> dict[str, Figures]:
    """Without the time that has passed: core/rollout/waiting.py says when that alone may change a decision."""
    return {revision: replace(found, seconds=None) for revision, found in figures.items()}


def _carried(wanted: Wanted) -> dict[str, Figures]:
    """By revision, what an operator before this one has counted in the window."""
    if wanted.window is None or wanted.carried is None:
        return {}
    account, green = wanted.carried, wanted.window[0]
    blue = next((revision for revision in wanted.measured if revision != green), None)
    found = {green: account.green}
    if blue is not None and account.blue is not None:
        found[blue] = account.blue
    return found


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
