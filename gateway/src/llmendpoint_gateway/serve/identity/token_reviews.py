"""Who may tell this gateway something: the operator, by a token of its service account that the API server reviews.

The token is made for the audience `llmendpoint-gateway` alone, so that it opens nothing else. While the API server is away
a token that it has accepted before goes on being accepted for as long as it lasts, an hour at most: a gateway that is cut
off is just the one that has to be told.
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
MOST_REVIEWS = 4  # at one time, and one more for a token that was accepted before
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    message: str


class Callers:
    """`operator`: the user name that a TokenReview tells, `system:serviceaccount:NAMESPACE:NAME`; None: nobody may."""

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
        """None: it is the operator."""
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
        """Review a token in the background where one comes with a request that needs none: while the API server answers,
        so that the operator is known when it does not."""
        if authorization is not None and not self._background:
            task = asyncio.create_task(self.refusal(authorization))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _review(self, token: str) -> bool | None:
        """Ask the API server; what it said before where it does not answer, and None where it said nothing."""
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
    """By the `exp` of a token that the API server has accepted; 0 where it has none."""
    try:
        payload = token.split(".")[1]
        claims = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"]) - time.time()
    except (IndexError, binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0.0
