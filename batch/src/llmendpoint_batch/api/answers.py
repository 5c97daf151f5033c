"""Answers in OpenAI's shape, errors included. An error that nobody expected fails its own request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from aiohttp import hdrs, web

from llmendpoint_batch.errors import Refused, StorageAway, StorageFull

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
AWAY_RETRY_AFTER = 2
"""Seconds."""
log = structlog.get_logger()


def shown(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def refusal(error: Refused) -> web.Response:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    param = error.param and _sendable(error.param)
    body = {"message": _sendable(error.message), "type": kind, "param": param, "code": error.code}
    return shown({"error": body}, error.status)


def _sendable(text: str) -> str:
    """Names in a form may hold bytes that are no UTF-8."""
    return text.encode(errors="replace").decode()


def _check_encoding(request: web.Request) -> None:
    """A small body may become a large one, and each of its bytes takes time."""
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        told = f"{hdrs.CONTENT_ENCODING} is not supported: send the body as it is."
        raise Refused(told, code="unsupported_media_type", status=415)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        _check_encoding(request)
        if "\0" in request.path or "\0" in request.query_string:
            raise Refused("The path has the character U+0000, which no id has.", code="invalid_path")
        return await handler(request)
    except Refused as error:
        return refusal(error)
    except StorageFull as error:
        log.error("a request failed for want of room on the disk", path=request.path, error=str(error))
        told = "The disk of the batch service is full. Nothing of this request was kept. Delete files, or ask its operator for room."
        return refusal(Refused(told, code="disk_full", status=507))
    except StorageAway as error:
        log.error("a request failed because the database is away", path=request.path, error=str(error))
        told = "The database of the batch service cannot be reached now. Look whether this request was done, and try again."
        answer = refusal(Refused(told, code="database_unavailable", status=503))
        answer.headers["Retry-After"] = str(AWAY_RETRY_AFTER)
        return answer
    except web.HTTPException as error:
        return refusal(_of_aiohttp(request, error))
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception:
        log.exception("a request failed", path=request.path)
        told = "The batch service failed at this request. Its log says why."
        return refusal(Refused(told, code="internal_error", status=500))


def _of_aiohttp(request: web.Request, error: web.HTTPException) -> Refused:
    path = request.path[:200]
    if error.status == 404:
        return Refused(f"Unknown path: {request.method} {path}.", code="unknown_url", status=404)
    if error.status == 405:
        allowed = error.headers.get("Allow", "")
        return Refused(f"{path} takes {allowed}.", code="method_not_allowed", status=405)
    if error.status == 413:
        return Refused("The request body is too large.", code="body_too_large", status=413)
    return Refused(error.reason[:200], code="bad_request", status=error.status)


def whole_number(request: web.Request, name: str, default: int, most: int, least: int = 1) -> int:
    """A query parameter from `least` to `most`."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise Refused(
            f"{name} must be a whole number from {least} to {most}, got {text[:100]!r}.", param=name
        )
    return int(text)


def one_of(request: web.Request, name: str, allowed: tuple[str, ...]) -> str | None:
    text = request.query.get(name)
    if text is not None and text not in allowed:
        raise Refused(f"{name} must be {' or '.join(allowed)}, got {text[:100]!r}.", param=name)
    return text
