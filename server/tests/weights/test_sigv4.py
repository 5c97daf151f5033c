"""docs/concepts/models.md: requests for `s3://` are signed as in the examples of Amazon's own page on Signature Version 4."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from llmendpoint_server.weights.sigv4 import Keys, signed_headers

KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
BUCKET = "https://examplebucket.s3.amazonaws.com"


@pytest.mark.parametrize(
    ("path", "headers", "signature"),
    [
        (
            "/test.txt",
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        ("/?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_a_get_is_signed_as_amazons_examples_are(path: str, headers: dict[str, str], signature: str) -> None:
    found = signed_headers(BUCKET + path, headers, KEYS, "us-east-1", datetime(2013, 5, 24, tzinfo=UTC))
    assert found["Authorization"].endswith(f"Signature={signature}")
    assert "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request" in found["Authorization"]


def test_a_session_token_is_signed_too() -> None:
    keys = Keys("AK", "secret", "session")
    found = signed_headers(f"{BUCKET}/a", {}, keys, "eu-west-1", datetime(2026, 1, 1, tzinfo=UTC))
    assert found["x-amz-security-token"] == "session"
    assert "x-amz-security-token" in found["Authorization"]
