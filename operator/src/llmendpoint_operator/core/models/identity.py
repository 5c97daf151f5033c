"""What an hf:// source means: a name and a branch, which a revision resolves once to a commit that never changes. An
s3:// source is resolved to a hash over what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

HUB = "hf://"
MAIN = "main"


class HubModel(NamedTuple):
    """`org/name`, and the branch, tag or commit that the source names."""

    repository: str
    branch: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What a hub or a store said of a source: its commit (or hash) now; or why there is none, and whether asking again may
    help."""

    commit: str = ""
    problem: str = ""
    permanent: bool = False
    reason: str = "ModelNotResolved"


def split_hub(source: str) -> HubModel | None:
    """`hf://org/name@branch`, where `@branch` may be left out; None for any other source."""
    if not source.startswith(HUB):
        return None
    repository, _, branch = source.removeprefix(HUB).partition("@")
    return HubModel(repository, branch or MAIN)
