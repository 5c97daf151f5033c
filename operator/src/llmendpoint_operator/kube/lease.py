"""Leadership by a Lease: one process works, the others wait.

A holder that cannot renew must stop before its lease ends, and others may take it only after it has ended by their
own clock (they count from when they saw the last change, so clocks need not agree).
"""

from __future__ import annotations

import asyncio
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
    """`duration_s` after the last renewal somebody else may take over; renewed every third of it."""

    def __init__(self, api: KubeApi, namespace: str, duration_s: int) -> None:
        self.identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._api = api
        self._namespace = namespace
        self._duration = duration_s
        self._observed: tuple[str, str] = ("", "")
        self._observed_at = 0.0

    async def acquire(self) -> None:
        """Return once the lease is ours."""
        waiting_for = ""
        while not await self._try():
            if self._observed[0] != waiting_for:
                waiting_for = self._observed[0]
                log.info("waiting for the lease", holder=waiting_for)
            await asyncio.sleep(self._duration / 5)
        log.info("lease acquired", identity=self.identity)

    async def renew(self) -> None:
        """Keep it until cancelled; LeadershipLost when it went, or could not be renewed in time."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self._duration / 3)
            if await self._try():
                renewed = time.monotonic()
            elif self._observed[0] not in ("", self.identity):
                raise LeadershipLost(f"the lease went to {self._observed[0]}")
            elif time.monotonic() - renewed > self._duration * 2 / 3:
                raise LeadershipLost("the lease could not be renewed in time")

    async def release(self) -> None:
        """Let the next one take it at once."""
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

    async def _try(self) -> bool:
        """Take or renew it; False when somebody else holds it or the API server does not answer in time."""
        try:
            async with asyncio.timeout(self._duration / 3):
                return await self._take()
        except (Conflict, TimeoutError):
            return False
        except ApiError as error:
            log.warning("lease not reachable", error=str(error))
            return False

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
