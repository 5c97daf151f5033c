"""Where models come from: a hub with Hugging Face's HTTP API, and S3."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from llmendpoint_server.errors import (
    BadConfiguration,
    FormatRefused,
    ModelNotFound,
    ModelUnavailable,
    SourceChanged,
)
from llmendpoint_server.weights.plan import (
    Checksum,
    Refusal,
    SourceFile,
    choose_files,
    etag_checksum,
    manifest_hash,
)
from llmendpoint_server.weights.sigv4 import Keys, signed_headers
from llmendpoint_server.weights.web import Reply, Web

PUBLIC_HUB = "https://huggingface.co"


class Source(Protocol):
    """A model that can be downloaded. Every call may raise a LoadError."""

    name: str
    """The name in messages."""

    def resolve(self, allow_pickle: bool) -> str:
        """What identifies its present content for good."""
        ...

    def files(self, revision: str, allow_pickle: bool) -> tuple[SourceFile, ...]:
        """The files to download of that content."""
        ...

    def open(self, file: SourceFile, revision: str, offset: int) -> AbstractContextManager[Reply]:
        """A file's content from byte `offset` on."""
        ...

    def checksum(self, file: SourceFile, headers: Mapping[str, str]) -> Checksum | None:
        """What the content must hash to, by the headers of its reply. None if the source does not say."""
        ...


def open_source(source: str) -> Source:
    """Make the source by its scheme. Credentials and endpoints come from the environment. Raises BadConfiguration."""
    scheme, _, rest = source.partition("://")
    if scheme == "hf" and re.fullmatch(r"[^/@]+/[^/@]+(@.+)?", rest):
        repository, _, branch = rest.partition("@")
        return HubSource(repository, branch or "main")
    if scheme == "s3" and rest.partition("/")[0]:
        bucket, _, prefix = rest.partition("/")
        return S3Source(bucket, prefix.strip("/"))
    raise BadConfiguration(
        f"--source {source}: write hf://<organisation>/<name>[@<branch>] or s3://<bucket>/<prefix>"
    )


def hub_home() -> Path:
    """Where the hub's tools keep what is this user's: HF_HOME, or a folder in the user's cache."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    return Path(os.path.expanduser(home))  # unlike Path's own, it does not fail for a user without a home


def _hub_token() -> str:
    """HF_TOKEN, or what `hf auth login` wrote."""
    if token := os.environ.get("HF_TOKEN", "").strip():
        return token
    try:
        return (hub_home() / "token").read_text().strip()
    except OSError:
        return ""


class HubSource:
    """hf://. HF_ENDPOINT, HF_TOKEN and HF_HOME have their usual meaning."""

    def __init__(self, repository: str, branch: str) -> None:
        self.name = f"hf://{repository}"
        self._repository, self._branch = quote(repository), branch
        self._endpoint = (os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")
        token = _hub_token()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._web = Web(self.name)

    def resolve(self, allow_pickle: bool) -> str:
        """The commit to which the branch points now."""
        url = f"{self._endpoint}/api/models/{self._repository}/revision/{quote(self._branch, safe='')}"
        commit = _json(self._web.page(url, self._headers)[0], self.name).get("sha")
        if not isinstance(commit, str) or not commit:
            raise ModelUnavailable(f"{self.name}@{self._branch}: the hub names no commit")
        return commit

    def files(self, revision: str, allow_pickle: bool) -> tuple[SourceFile, ...]:
        """The files of a commit."""
        return _chosen(self.name, list(self._listing(revision)), allow_pickle)

    def _listing(self, revision: str) -> Iterator[SourceFile]:
        url: str | None = (
            f"{self._endpoint}/api/models/{self._repository}/tree/{quote(revision, safe='')}?recursive=true"
        )
        while url:
            body, headers = self._web.page(url, self._headers)
            yield from (
                _hub_file(item) for item in _json(body, self.name, list) if item.get("type") == "file"
            )
            following = re.search(r'<([^>]+)>;\s*rel="next"', headers.get("link", ""))
            url = following[1] if following else None
            if url and urlsplit(url).netloc != urlsplit(self._endpoint).netloc:
                raise ModelUnavailable(f"{self.name}: the hub's listing goes on at another host")

    def open(self, file: SourceFile, revision: str, offset: int) -> AbstractContextManager[Reply]:
        """The hub redirects to where it keeps large files."""
        url = f"{self._endpoint}/{self._repository}/resolve/{quote(revision, safe='')}/{quote(file.path)}"
        return self._web.get(url, {**self._headers, **_range(offset), "Accept-Encoding": "identity"})

    def checksum(self, file: SourceFile, headers: Mapping[str, str]) -> Checksum | None:
        """From the listing."""
        return file.checksum


class S3Source:
    """s3://. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL have their
    usual meaning. Without keys requests are not signed."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.name = f"s3://{bucket}/{prefix}".rstrip("/")
        environment = os.environ.get
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = environment("AWS_REGION") or environment("AWS_DEFAULT_REGION") or "us-east-1"
        access, secret = environment("AWS_ACCESS_KEY_ID", ""), environment("AWS_SECRET_ACCESS_KEY", "")
        self._keys = Keys(access, secret, environment("AWS_SESSION_TOKEN", "")) if access and secret else None
        endpoint = environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL")
        self._base = _bucket_url(bucket, self._region, endpoint)
        self._web = Web(self.name, follow_redirects=False)

    def resolve(self, allow_pickle: bool) -> str:
        """A hash over the names, ETags and sizes of what would be downloaded."""
        return manifest_hash(self._chosen(allow_pickle))

    def files(self, revision: str, allow_pickle: bool) -> tuple[SourceFile, ...]:
        """The files as they are now. Raises SourceChanged if they differ from those of `revision`."""
        found = self._chosen(allow_pickle)
        if (now := manifest_hash(found)) != revision:
            raise SourceChanged(
                f"{self.name}: what lies there now is {now}, and this revision was made of {revision}"
            )
        return found

    def _chosen(self, allow_pickle: bool) -> tuple[SourceFile, ...]:
        listing = list(self._listing())
        if not listing:
            raise ModelNotFound(f"{self.name}: there is nothing under this prefix")
        return _chosen(self.name, listing, allow_pickle)

    def _listing(self) -> Iterator[SourceFile]:
        token = ""
        while True:
            query = {"list-type": "2", "prefix": self._prefix}
            query |= {"continuation-token": token} if token else {}
            page = _xml(self._get_page(f"{self._base}/?{urlencode(query)}"), self.name)
            for item in page.iterfind("{*}Contents"):
                path = (item.findtext("{*}Key") or "").removeprefix(self._prefix)
                etag = (item.findtext("{*}ETag") or "").strip('"')
                if path and not path.endswith("/"):
                    yield SourceFile(path, int(item.findtext("{*}Size") or 0), etag)
            token = page.findtext("{*}NextContinuationToken") or ""
            if not token:
                return

    def _get_page(self, url: str) -> bytes:
        return self._web.page(url, self._signed(url, {}))[0]

    def open(self, file: SourceFile, revision: str, offset: int) -> AbstractContextManager[Reply]:
        """Raises SourceChanged if the object is not the listed one any more."""
        url = f"{self._base}/{quote(self._prefix + file.path, safe='/-_.~')}"
        return self._web.get(url, self._signed(url, {**_range(offset), "If-Match": f'"{file.tag}"'}))

    def checksum(self, file: SourceFile, headers: Mapping[str, str]) -> Checksum | None:
        """From the ETag, if that is an MD5."""
        return etag_checksum(file.tag, headers)

    def _signed(self, url: str, headers: dict[str, str]) -> dict[str, str]:
        if self._keys is None:
            return headers
        return signed_headers(url, headers, self._keys, self._region, datetime.now(UTC))


def _chosen(name: str, listing: Sequence[SourceFile], allow_pickle: bool) -> tuple[SourceFile, ...]:
    found = choose_files(listing, allow_pickle)
    if not isinstance(found, Refusal):
        return found
    message = f"{name}: {found.message}"
    raise FormatRefused(message) if found.pickles else ModelNotFound(message)


def _hub_file(item: Mapping[str, object]) -> SourceFile:
    """Large files have the SHA-256 of their content, the others the id of their git blob."""
    large, oid = item.get("lfs"), str(item.get("oid", ""))
    size = item.get("size")
    checksum = Checksum("git-sha1", oid) if re.fullmatch(r"[0-9a-f]{40}", oid) else None
    if isinstance(large, Mapping):
        oid, size = str(large.get("oid", "")), large.get("size", size)
        checksum = Checksum("sha256", oid)
    return SourceFile(str(item.get("path", "")), size if isinstance(size, int) else 0, oid, checksum)


def _bucket_url(bucket: str, region: str, endpoint: str | None) -> str:
    """The bucket's URL. A bucket with a dot in its name goes into the path, because as a host it has no certificate."""
    if endpoint:
        return f"{endpoint.rstrip('/')}/{bucket}"
    if "." in bucket:
        return f"https://s3.{region}.amazonaws.com/{bucket}"
    return f"https://{bucket}.s3.{region}.amazonaws.com"


def _range(offset: int) -> dict[str, str]:
    return {"Range": f"bytes={offset}-"} if offset else {}


def _json(body: bytes, name: str, kind: type = dict) -> Any:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise ModelUnavailable(f"{name}: the hub's answer is no JSON") from error
    if not isinstance(found, kind):
        raise ModelUnavailable(f"{name}: the hub's answer has another shape than expected")
    return found


def _xml(body: bytes, name: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise ModelUnavailable(f"{name}: the listing is no XML") from error
