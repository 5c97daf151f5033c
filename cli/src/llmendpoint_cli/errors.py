"""Every error this package raises, each with the exit code of the command that it ends.

CliError (1)
├── BadUsage (2)      an option or argument with a wrong value
├── NotFound (3)      no such endpoint, revision or kind
├── Refused (4)       this program or the operator refuses the request
├── TimedOut (5)      something did not happen in time
└── NoAccess (6)      no usable kubeconfig, no connection, not authorised
    └── Unreachable   the API server did not answer; it may come back
"""

from __future__ import annotations


class CliError(Exception):
    """The base class. By itself: something is wrong on the server's side, or none of the errors below applies."""

    exit_code = 1


class BadUsage(CliError):
    """Names the option and what it may hold."""

    exit_code = 2


class NotFound(CliError):
    """Names what was looked for, and where."""

    exit_code = 3


class Refused(CliError):
    """Says what the state is, and what is possible instead."""

    exit_code = 4


class TimedOut(CliError):
    """Says what the command waited for, and how long."""

    exit_code = 5


class NoAccess(CliError):
    """Says what is missing."""

    exit_code = 6


class Unreachable(NoAccess):
    """The API server did not answer. A command that follows something tries again."""


class Conflict(CliError):
    """The object changed between read and write; read it again."""
