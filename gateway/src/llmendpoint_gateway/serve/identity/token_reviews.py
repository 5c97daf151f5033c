"""Who may write to this gateway: the operator, by a token of its service account that the API server reviews.

The token is made for the audience `llmendpoint-gateway` only, so that it opens nothing else. While the API server is
unreachable, a token that it accepted before stays valid as long as it lasts, an hour at most: a gateway that is cut off
is the one that must be told.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import structlog

from llmendpoint_gateway.access import Access
from llmendpoint_gateway.core.identity.verdicts import Verdicts

AUDIENCE = "llmendpoint-gateway"
PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
TIMEOUT = aiohttp.ClientTimeout(total=3)
MOST_REVIEWS = 4  # concurrent, and one more for a token that was accepted before
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    message: str


class Callers:
    """`operator`: the user name in a TokenReview, `system:serviceaccount:NAMESPACE:NAME`; None: no user may write."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: Access,
        operator: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._session, self._access, self._operator, self._clock = session, access, operator, clock
        self._verdicts = Verdicts()
        self._reviews = 0
        self._background: set[asyncio.Task[Refusal | None]] = set()

    async def refusal(self, authorization: str | None) -> Refusal | None:
        """None if it is the operator."""
        if self._operator is None:
            return Refusal(403, "this gateway was started without --operator, so nobody may tell it anything")
        kind, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            return Refusal(
                401, f"send a service account's token for the audience {AUDIENCE} as a bearer token"
            )
        allowed = self._verdicts.of(token, self._clock())
        if allowed is None:
            before = self._verdicts.of(token, self._clock(), asked_in_vain=True)
            if self._reviews < MOST_REVIEWS + (before is True):
                allowed = await self._review(token)
            elif before is None:
                return Refusal(503, "too many tokens are being reviewed; try again")
            else:
                allowed = before
        if allowed is None:
            return Refusal(503, "the API server does not answer, so the token cannot be reviewed; try again")
        return None if allowed else Refusal(403, f"this is not a token of {self._operator} for {AUDIENCE}")

    def meet(self, authorization: str | None) -> None:
        """Review in the background a token that comes with a request which needs none. So the operator is known when
        the API server does not answer later."""
        if authorization is not None and not self._background:
            task = asyncio.create_task(self.refusal(authorization))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _review(self, token: str) -> bool | None:
        """Ask the API server. If it does not answer: what it said before, or None if it said nothing."""
        self._reviews += 1
        try:
            status = await self._ask(token)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError, KeyError) as error:
            log.warning("a token could not be reviewed", reason=str(error) or type(error).__name__)
            return self._verdicts.of(token, self._clock(), asked_in_vain=True)
        finally:
            self._reviews -= 1
        user = (status.get("user") or {}).get("username")
        allowed = (
            status.get("authenticated") is True
            and user == self._operator
            and AUDIENCE in (status.get("audiences") or ())
        )
        self._verdicts.keep(token, allowed, self._clock(), _seconds_left(token) if allowed else 0)
        return allowed

    async def _ask(self, token: str) -> dict[str, Any]:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        headers = {**self._access.headers(), "Content-Type": "application/json"}
        async with self._session.post(
            self._access.server + PATH, data=orjson.dumps(body), headers=headers, timeout=TIMEOUT
        ) as response:
            if response.status not in (200, 201):
                raise aiohttp.ClientError(f"POST {PATH}: {response.status} {(await response.text())[:300]}")
            found: dict[str, Any] = orjson.loads(await response.read())["status"]
            return found


def _seconds_left(token: str) -> float:
    """Until the `exp` of a token that the API server accepted; 0 if it has none."""
    try:
        payload = token.split(".")[1]
        claims = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"]) - time.time()
    except (IndexError, binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0.0
