"""What can go wrong with the test bed.

ClusterError
    CommandFailed        a program that we ran ended with an error
    ToolMissing          something that only the user can install
    NotStarted           a component ended or did not become ready in time
    AlreadyTaken         the machine runs something that must not be touched
    NoSuchCluster        a name that was never brought up, or is down
    Stopped              ended because another part of the same work failed
"""

from collections.abc import Sequence


class ClusterError(Exception):
    """Says what was wrong, where, and what would be right."""


class CommandFailed(ClusterError):
    """`argv` ended with `code`; `output` is the end of what it printed."""

    def __init__(self, argv: Sequence[str], code: int, output: str) -> None:
        super().__init__(f"`{' '.join(argv)[:500]}` ended with {code}:\n{output.strip()}")
        self.code = code
        self.output = output


class ToolMissing(ClusterError):
    """A tool that the test bed cannot bring itself."""


class NotStarted(ClusterError):
    """A component did not come up."""


class AlreadyTaken(ClusterError):
    """Going on would touch somebody else's containers, chains or kubelet."""


class NoSuchCluster(ClusterError):
    """There is no running cluster of that name."""


class Stopped(ClusterError):
    """This part was ended because another one failed, whose error is the one to show."""
