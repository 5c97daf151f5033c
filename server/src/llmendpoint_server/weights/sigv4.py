"""AWS Signature Version 4 of a GET without a body.

Source: "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)", Amazon S3 API Reference;
its two examples of a GET are the tests.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials. `token`: for temporary ones only."""

    access: str
    secret: str
    token: str = ""


def signed_headers(
    url: str, headers: Mapping[str, str], keys: Keys, region: str, now: datetime
) -> dict[str, str]:
    """`headers` with those that S3 requires, such as `Authorization`. The URL's path is encoded already; `now` is UTC."""
    parts, stamp = urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ")
    extra = {"host": parts.netloc, "x-amz-content-sha256": EMPTY, "x-amz-date": stamp}
    if keys.token:
        extra["x-amz-security-token"] = keys.token
    every = {name.lower(): value.strip() for name, value in {**headers, **extra}.items()}
    names = ";".join(sorted(every))
    request = "\n".join(
        [
            "GET",
            parts.path or "/",
            _query(parts.query),
            "".join(f"{name}:{every[name]}\n" for name in sorted(every)),
            names,
            EMPTY,
        ]
    )
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.new(
        _signing_key(keys.secret, stamp[:8], region), text.encode(), hashlib.sha256
    ).hexdigest()
    credential = f"Credential={keys.access}/{scope},SignedHeaders={names},Signature={signature}"
    return {**headers, **extra, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}


def _query(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    return "&".join(
        sorted(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
    )


def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
