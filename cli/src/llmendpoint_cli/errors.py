"""Every error this package raises, each with the exit code of the command that it ends.

CliError (1)
├── BadUsage (2)      an option or argument that cannot be meant
├── NotFound (3)      no such endpoint, revision or kind
├── Refused (4)       the request makes no sense now, says this program or the operator
├── TimedOut (5)      what was waited for did not come in time
└── NoAccess (6)      no usable kubeconfig, no connection, not authorised
    └── Unreachable   the API server did not answer; it may come back
"""

from __future__ import annotations


class CliError(Exception):
    """The root: something is wrong on the server's side, or none of what is below."""

    exit_code = 1


class BadUsage(CliError):
    """Names the option and what it may hold."""

    exit_code = 2


class NotFound(CliError):
    """Names what was looked for, and where."""

    exit_code = 3


class Refused(CliError):
    """Says what is the case instead, and what would be possible."""

    exit_code = 4


class TimedOut(CliError):
    """Says what was waited for, how long, and what the last state was."""

    exit_code = 5


class NoAccess(CliError):
    """Says what is missing."""

    exit_code = 6


class Unreachable(NoAccess):
    """No answer from the API server; those who follow something try again."""


class Conflict(CliError):
    """The object changed between being read and being written; read it again."""
