"""HTTP GET with streamed bodies; each failure is an error of errors.py."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from llmendpoint_server.errors import AccessDenied, LoadError, ModelNotFound, ModelUnavailable, SourceChanged

SILENCE_S = 30.0
"""Seconds. A connection on which nothing arrives for this time is given up."""
LARGEST_PAGE = 64 * 2**20
"""Bytes of a listing, at most."""


class EndsEarly(ModelUnavailable):
    """A file has fewer bytes than its source lists, or the connection broke."""


class Reply(NamedTuple):
    """`headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: http.client.HTTPResponse


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Removes credentials at a redirect to another host, as is common for downloads: they are for their own host only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            found.remove_header("Authorization")
        return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A signed request cannot be redirected."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Web:
    """`where` begins the messages of errors. Proxies come from the environment, as with curl."""

    def __init__(self, where: str, follow_redirects: bool = True) -> None:
        self._where = where
        self._opener = urllib.request.build_opener(_Redirects() if follow_redirects else _NoRedirects())

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Reply]:
        """A reply with 2xx. Raises ModelNotFound, AccessDenied, SourceChanged, or ModelUnavailable if a later try may
        succeed; also if the connection breaks while the body is read."""
        request = urllib.request.Request(url, headers=dict(headers))
        try:
            with self._opener.open(request, timeout=SILENCE_S) as body:
                yield Reply(body.status, _lower(body.headers), body)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error) from error
        except LoadError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise ModelUnavailable(
                f"{self._where}: {urlsplit(url).netloc} does not answer: {_said(error)}"
            ) from error

    def page(self, url: str, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """A whole body, with the reply's headers."""
        with self.get(url, headers) as reply:
            body = reply.body.read(LARGEST_PAGE + 1)
        if len(body) > LARGEST_PAGE:
            raise ModelUnavailable(f"{self._where}: a listing of more than {LARGEST_PAGE} bytes is not read")
        return body, reply.headers

    def _refused(self, error: urllib.error.HTTPError) -> LoadError:
        host, code = urlsplit(error.url).netloc, error.headers.get("X-Error-Code", "")
        said = f"{self._where}: {host} answers {error.code}{f' ({code})' if code else ''}"
        if error.code in (401, 403):
            return AccessDenied(f"{said}: it is not there, or these credentials may not read it")
        if error.code in (404, 410):
            return ModelNotFound(f"{said}: it is not there")
        if error.code == 412:
            return SourceChanged(f"{said}: a file was replaced since this revision was made")
        if error.code == 416:
            return EndsEarly(f"{said}: a file ends before this byte")
        if 300 <= error.code < 400:
            region = error.headers.get("x-amz-bucket-region")
            hint = f"; the bucket is in {region}, set AWS_REGION to that" if region else ""
            return ModelNotFound(f"{said}: it is somewhere else{hint}")
        return ModelUnavailable(f"{said}")


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _said(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return f"{type(reason).__name__}: {reason}" if isinstance(reason, Exception) else str(reason)
