"""Who sends a request, by the key in its headers, where keys are asked for."""

from collections.abc import Mapping
from enum import Enum

from llmendpoint_gateway.core.identity.credentials import Malformed, Proof, find_key, proof_of
from llmendpoint_gateway.core.identity.grants import ANONYMOUS, Identity
from llmendpoint_gateway.core.identity.keys import Denied, Keys, Reason


class Authentication(Enum):
    """OFF: keys are not looked at. OPTIONAL: who sends a key is judged by it, and all others may use the endpoints that do not set
    `spec.access`. REQUIRED: nobody gets in without a key."""

    OFF = "off"
    OPTIONAL = "optional"
    REQUIRED = "required"


def identify(
    mode: Authentication, headers: Mapping[str, bytes], doubled: bool, keys: Keys, now: float
) -> tuple[Identity | Denied, Proof | None]:
    """`doubled`: one of the headers came more than once, so that it is unclear which one counts. The proof is what a later judgement of
    the same request needs; None: there is no key in it."""
    try:
        text = find_key(headers)
    except Malformed:
        return Denied(Reason.MALFORMED), None
    if doubled:
        return Denied(Reason.MALFORMED), None
    if text is None:
        return ANONYMOUS if mode is Authentication.OPTIONAL else Denied(Reason.MISSING), None
    proof = proof_of(text)
    return keys.judge(proof, now), proof
