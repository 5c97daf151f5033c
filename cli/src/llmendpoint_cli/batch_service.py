"""The batch service, through the API server's proxy to its Service."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from .client import Client, Json
from .core.batches import SELECTOR, SERVICE, form_around
from .errors import BadUsage, NotFound, Unreachable

CHUNK = 1 << 18


class BatchService:
    """Raises NotFound if the cluster has none."""

    def __init__(self, client: Client, namespace: str | None) -> None:
        found = client.services(namespace, SELECTOR)
        if not found:
            where = f"in namespace {namespace}" if namespace else "in any namespace"
            raise NotFound(f"no batch service {where}: set batch.enabled to true in the chart's values")
        self._client = client
        place = quote(found[0]["metadata"]["namespace"])
        self._path = f"/api/v1/namespaces/{place}/services/{SERVICE}:http/proxy/v1"

    def upload(self, path: Path) -> Json:
        """The file object. Raises BadUsage if the file cannot be read."""
        boundary = uuid.uuid4().hex
        before, after = form_around(path.name, boundary)
        try:
            size = path.stat().st_size
            with path.open("rb") as file:

                def form() -> Iterator[bytes]:
                    file.seek(0)
                    yield before
                    yield from iter(lambda: file.read(CHUNK), b"")
                    yield after

                headers = {
                    "Content-Type": f"multipart/form-data; boundary={boundary}",
                    "Content-Length": str(len(before) + size + len(after)),
                }
                return self._client.proxied(
                    "POST", f"{self._path}/files", "the batch service", _json, form, headers
                )
        except OSError as error:
            raise BadUsage(f"{path} cannot be read: {error.strerror or error}") from None

    def create(self, body: Json) -> Json:
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        return self._client.proxied(
            "POST", f"{self._path}/batches", "the batch service", _json, lambda: [data], headers
        )

    def batch(self, batch_id: str) -> Json:
        path = f"{self._path}/batches/{quote(batch_id, safe='')}"
        return self._client.proxied("GET", path, f"batch {batch_id}", _json)

    def copy(self, file_id: str, to: BinaryIO) -> None:
        """A file's bytes, as they come."""

        def copied(response: http.client.HTTPResponse) -> None:
            while data := response.read(CHUNK):
                to.write(data)
            to.flush()

        path = f"{self._path}/files/{quote(file_id, safe='')}/content"
        self._client.proxied("GET", path, f"file {file_id}", copied)


def _json(response: http.client.HTTPResponse) -> Json:
    text = response.read()
    try:
        found: Json = json.loads(text)
    except ValueError:
        raise Unreachable(f"the batch service answers {text[:80]!r}; is it of another version?") from None
    return found
