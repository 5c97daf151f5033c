"""`llmendpoint-server`: flags in, exit code out. docs/contracts.md lists both."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from llmendpoint_server import logs
from llmendpoint_server.api.engine_client import ENGINE_COMMAND
from llmendpoint_server.api.server import serve
from llmendpoint_server.errors import ServerError
from llmendpoint_server.limits import raise_open_files
from llmendpoint_server.settings import Settings, parse


def run(settings: Settings, engine_command: Sequence[str] = ENGINE_COMMAND) -> int:
    """The exit code. The cause of a failure is the last line of the log, and the container's termination message."""
    logs.configure()
    raise_open_files()
    try:
        end = serve(settings, engine_command)
    except ServerError as error:
        logs.log_fatal(str(error), error.exit_code)
        return error.exit_code
    except Exception as error:
        logs.log_fatal(f"The server failed: {type(error).__name__}: {error}", 1)
        return 1
    if end is not None:
        logs.log_fatal(end.cause, end.exit_code)
        return end.exit_code
    return 0


def main() -> None:
    sys.exit(run(parse(sys.argv[1:])))


if __name__ == "__main__":
    main()
