"""The command `llmendpoint-server`. Flags: docs/contribute/contracts.md. Exit codes: docs/reference/exit-codes.md."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from llmendpoint_server.api.engine_process import ENGINE_COMMAND
from llmendpoint_server.api.model_service import make_service
from llmendpoint_server.api.server import serve
from llmendpoint_server.exits import exit_code_of
from llmendpoint_server.settings import Settings, parse


def run(settings: Settings, engine_command: Sequence[str] = ENGINE_COMMAND) -> int:
    """Serve until the server stops. Returns the exit code."""
    return exit_code_of(lambda: serve(settings, lambda: make_service(settings, engine_command)))


def main() -> None:
    sys.exit(run(parse(sys.argv[1:])))


if __name__ == "__main__":
    main()
