"""Resolved sources. An hf:// source names a model and a branch; a revision resolves it once to a commit that
never changes. An s3:// source is resolved to a hash of its files' paths, ETags and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

HUB = "hf://"
MAIN = "main"


class HubModel(NamedTuple):
    """`org/name`, and the branch, tag or commit of the source."""

    repository: str
    branch: str


@dataclass(frozen=True, slots=True)
class Identity:
    """The answer of a hub or store about a source: its present commit (or hash), or why there is none.
    `permanent`: asking again does not help."""

    commit: str = ""
    problem: str = ""
    permanent: bool = False
    reason: str = "ModelNotResolved"


def split_hub(source: str) -> HubModel | None:
    """The parts of `hf://org/name@branch`, in which `@branch` is optional; None for any other source."""
    if not source.startswith(HUB):
        return None
    repository, _, branch = source.removeprefix(HUB).partition("@")
    return HubModel(repository, branch or MAIN)
