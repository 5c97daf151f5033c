"""LLMKeys, and the texts of their keys, as `kubectl llm keys create` makes them."""

import base64
import hashlib
import secrets
import string
from collections.abc import Mapping
from typing import Any

from gateway.tests.api_stub import ApiStub
from llmendpoint_gateway.core.identity.credentials import proof_of
from llmendpoint_gateway.core.identity.grants import Identity
from llmendpoint_gateway.core.identity.key_objects import parse_key
from llmendpoint_gateway.core.identity.keys import Keys, Reason

CREATED = "2026-01-01T00:00:00Z"
NOW = 1_800_000_000.0  # in January 2027
LETTERS = string.ascii_lowercase + string.digits


def key_text(id_: str = "") -> str:
    id_ = id_ or "".join(secrets.choice(LETTERS) for _ in range(16))
    return f"llm_{id_}_{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"


def digest(text: str, namespace: str = "team") -> str:
    inner = hashlib.sha256(text.encode()).hexdigest()
    return hashlib.sha256(f"{namespace}/{inner}".encode()).hexdigest()


def llm_key(
    text: str, name: str = "ci", namespace: str = "team", created: str = CREATED, **spec: Any
) -> dict[str, Any]:
    """Its object. `spec`: fields beside the id and the hash."""
    return {
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created},
        "spec": {"id": text[4:20], "hashes": [{"sha256": digest(text, namespace)}], "grants": [{}], **spec},
    }


def put_key(api: ApiStub, name: str = "ci", **more: Any) -> str:
    """A new key that may use all of its namespace, unless `grants` say otherwise; returns its text."""
    text = key_text()
    api.put("llmkeys", llm_key(text, name, **more))
    return text


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def keys(*bodies: Mapping[str, object]) -> Keys:
    table = Keys()
    for body in bodies:
        table.put(parse_key(body))
    return table


def judged(table: Keys, text: str, now: float = NOW) -> str | Reason:
    """The LLMKey, or the reason."""
    found = table.judge(proof_of(text.encode()), now)
    return found.key if isinstance(found, Identity) else found.reason
