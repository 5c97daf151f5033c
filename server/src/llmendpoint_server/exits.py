"""Turns how serving ended into the exit code of docs/reference/exit-codes.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llmendpoint_server import logs
from llmendpoint_server.errors import ServerError
from llmendpoint_server.resources import raise_open_files


@dataclass(frozen=True)
class EngineEnd:
    """Why the engine ended, and the exit code of this process."""

    cause: str
    exit_code: int


def exit_code_of(serving: Callable[[], EngineEnd | None]) -> int:
    """The exit code. The cause of a failure is the last line of the log, and the container's termination message."""
    logs.configure()
    raise_open_files()
    try:
        end = serving()
    except ServerError as error:
        logs.log_fatal(str(error), error.exit_code)
        return error.exit_code
    except Exception as error:  # any: the process ends, and its last line says why
        logs.log_fatal(f"The server failed: {type(error).__name__}: {error}", 1)
        return 1
    if end is not None:
        logs.log_fatal(end.cause, end.exit_code)
        return end.exit_code
    return 0
