"""`python -m llmendpoint_server.engine.parallel --socket-fd N --rank R`. Rank 0 starts it; people do not."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import socket
import sys
from typing import Any

import structlog

from llmendpoint_server import logs
from llmendpoint_server.engine.machine import spin_briefly


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m llmendpoint_server.engine.parallel",
        description="One rank of an engine that is divided. Rank 0 starts it and talks to it over a socket.",
        epilog="example: llmendpoint-server --model embedded://demo --tensor-parallel-size 2 (which runs this)",
    )
    parser.add_argument(
        "--socket-fd", type=int, required=True, help="inherited end of a connected Unix stream socket"
    )
    parser.add_argument("--rank", type=int, required=True, help="this process's number, from 1 on")
    arguments = parser.parse_args()
    _log_as(arguments.rank)
    # Rank 0 ends by itself after a drain, and this process with it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spin_briefly()
    gc.disable()  # until the model is loaded: what is imported and loaded stays
    from llmendpoint_server.engine.parallel.messages import Line
    from llmendpoint_server.engine.parallel.worker import work
    from llmendpoint_server.engine.watch import leave_with_the_other_end

    stream = socket.socket(fileno=arguments.socket_fd)
    leave_with_the_other_end(stream, "rank-0-watch")
    code = work(Line(stream))
    sys.stderr.flush()
    os._exit(code)  # a collective that cannot end would keep the interpreter from ending


def _log_as(rank: int) -> None:
    """Warnings and errors, with the rank: all else is what rank 0 says, too."""
    logs.configure()

    def named(_: Any, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        return {**event, "rank": rank}

    structlog.configure(
        processors=[named, *structlog.get_config()["processors"]],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )


if __name__ == "__main__":
    sys.exit(main())
