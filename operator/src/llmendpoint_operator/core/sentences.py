"""Text for the status and for Events: no longer than the CRD allows, and without anything that looks like a
credential.

More people can read a status than a pod's logs, and a status quotes an engine's last line of output.
"""

from __future__ import annotations

import re

SENTENCE_LIMIT = 2048
"""Characters. The API server would refuse the whole status because of a longer text."""
_READ_LIMIT = 8 * SENTENCE_LIMIT
"""Characters of foreign text that are read; the rest is ignored."""
REDACTED = "[redacted]"

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)?|.)")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
"""Terminal control characters, and characters that are invisible or change the direction of text."""
_KNOWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{16,}|gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"
)
"""Token formats of hubs, clouds and code hosts."""
_HEADER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_USER_INFO = re.compile(r"://[^/\s@]{1,256}@")
_NAMED = re.compile(
    r"(?i)(?P<name>(?:token|secret|password|passwd|api[_-]?key|access[_-]?key)(?![a-z])[\w.-]{0,64}[\"']?)"
    r"(?P<by>\s*=\s*[\"']?|\s*:\s*[\"']?(?=[^\s\"']{0,128}[0-9]))(?P<value>[^\s\"',;&]{6,})"
)
"""`name=value`; also `name: value` with a digit in the value, as prose may have a colon there."""


def redacted(text: str) -> str:
    """The text on one line, with REDACTED in place of what looks like a credential."""
    text = _CONTROLS.sub(" ", _ESCAPES.sub("", text[:_READ_LIMIT]))
    text = _KNOWN.sub(REDACTED, text)
    text = _HEADER.sub(rf"\1 {REDACTED}", text)
    text = _USER_INFO.sub(f"://{REDACTED}@", text)
    return _NAMED.sub(rf"\g<name>\g<by>{REDACTED}", text)


def fitting(sentence: str, limit: int = SENTENCE_LIMIT) -> str:
    """The sentence, redacted and cut to `limit` characters."""
    sentence = redacted(sentence)
    return sentence if len(sentence) <= limit else sentence[: limit - 1] + "…"


def latency_text(seconds: float) -> str:
    """`450 ms` below one second, else `1.2 s`. Three digits show that a value is just above its limit."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
