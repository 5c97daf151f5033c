"""Leadership by a Lease: one process leads, the others wait.

The holder counts from before the call that renewed the Lease, and gives up after five sixths of the duration.
Others count from when they saw the last renewal, which is later, and take over after the whole duration. So
clocks need not agree. A holder that was suspended and noticed nothing finds on waking that `is_held` is
false, and writes nothing more. A late renewal is safe: the Lease is replaced by resourceVersion, which fails
if another process has taken it.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
import uuid
from datetime import UTC, datetime

import structlog

from ..core.names import MANAGER
from ..errors import ApiError, Conflict, LeadershipLost, NotFound
from .client import Json, KubeApi
from .resources import LEASES

log = structlog.get_logger()


class Lease:
    """Another process may take over `duration_s` seconds after a renewal. The holder renews after a third."""

    def __init__(self, api: KubeApi, namespace: str, duration_s: int) -> None:
        self.identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._api = api
        self._namespace = namespace
        self._duration = duration_s
        self._observed: tuple[str, str] = ("", "")
        self._observed_at = 0.0
        self._renewed = -math.inf
        """Monotonic time at which the last successful attempt began."""

    @property
    def is_held(self) -> bool:
        """Whether no other process can hold the Lease. Writes depend on it."""
        return time.monotonic() - self._renewed < self._duration

    async def acquire(self) -> None:
        """Return once this process holds the Lease."""
        waiting_for = ""
        while not await self._try(self._duration / 3):
            if self._observed[0] != waiting_for:
                waiting_for = self._observed[0]
                log.info("waiting for the lease", holder=waiting_for)
            await asyncio.sleep(self._duration / 5)
        log.info("lease acquired", identity=self.identity)

    async def renew(self) -> None:
        """Renew the Lease until cancelled. Raises LeadershipLost if it was taken or not renewed in time."""
        while True:
            await asyncio.sleep(self._duration / 3)
            deadline = self._renewed + self._duration * 5 / 6
            while not await self._try(max(deadline - time.monotonic(), self._duration / 6)):
                if self._observed[0] not in ("", self.identity):
                    raise LeadershipLost(f"the lease went to {self._observed[0]}")
                if time.monotonic() >= deadline:
                    raise LeadershipLost("the lease could not be renewed in time")
                await asyncio.sleep(self._duration / 30)

    async def release(self) -> None:
        """Give the Lease up, so that another process can take it at once."""
        self._renewed = -math.inf
        try:
            lease = await self._api.get(LEASES, self._namespace, MANAGER)
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] = {
                    **lease["spec"],
                    "holderIdentity": "",
                    "leaseDurationSeconds": 1,
                    "renewTime": _now(),
                }
                await self._api.replace(LEASES, self._namespace, MANAGER, lease)
        except ApiError as error:
            log.warning("lease not released", error=str(error))

    async def _try(self, limit_s: float) -> bool:
        """Take or renew the Lease. False if another process holds it, or the API server gives no answer
        within `limit_s` seconds."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(limit_s, 0)):
                held = await self._take()
        except (Conflict, TimeoutError):
            return False
        except ApiError as error:
            log.warning("lease not reachable", error=str(error))
            return False
        if held:
            self._renewed = began
        return held

    async def _take(self) -> bool:
        try:
            lease = await self._api.get(LEASES, self._namespace, MANAGER)
        except NotFound:
            metadata = {"name": MANAGER, "namespace": self._namespace}
            body = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": metadata,
                "spec": self._spec({}),
            }
            await self._api.create(LEASES, self._namespace, body)
            return True
        spec = lease.get("spec", {})
        self._observe(spec)
        if spec.get("holderIdentity") not in (None, "", self.identity) and not self._ended(spec):
            return False
        lease["spec"] = self._spec(spec)
        await self._api.replace(LEASES, self._namespace, MANAGER, lease)
        return True

    def _observe(self, spec: Json) -> None:
        seen = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        if seen != self._observed:
            self._observed, self._observed_at = seen, time.monotonic()

    def _ended(self, spec: Json) -> bool:
        return time.monotonic() - self._observed_at > float(spec.get("leaseDurationSeconds", self._duration))

    def _spec(self, old: Json) -> Json:
        taken_over = old.get("holderIdentity") != self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._duration,
            "acquireTime": _now() if taken_over else old.get("acquireTime", _now()),
            "renewTime": _now(),
            "leaseTransitions": int(old.get("leaseTransitions", 0)) + (1 if old and taken_over else 0),
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
