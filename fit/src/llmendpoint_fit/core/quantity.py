"""Kubernetes quantities of bytes."""

from __future__ import annotations

import re

UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


def parse_bytes(text: str | int) -> int:
    """`24Gi` as bytes. Raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGTP]i?|Ki)?", str(text))
    if found is None:
        raise ValueError(f"{text!r} is no amount of bytes; write one like 24Gi or 80G")
    return int(float(found[1]) * UNITS[found[2] or ""])
