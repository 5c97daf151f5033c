"""`python -m llmendpoint_server.engine --socket-fd N`. `llmendpoint-server` starts it; people do not."""

from __future__ import annotations

import argparse
import gc
import signal
import socket
import sys

from llmendpoint_server import logs
from llmendpoint_server.engine.machine import spin_briefly


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m llmendpoint_server.engine",
        description="The engine process. `llmendpoint-server` starts it and talks to it over a socket.",
        epilog="example: llmendpoint-server --model embedded://demo (which runs this)",
    )
    parser.add_argument(
        "--socket-fd", type=int, required=True, help="inherited end of a connected Unix stream socket"
    )
    arguments = parser.parse_args()
    logs.configure()
    # The API process drains and then closes the socket: a signal to the whole group must not end streams.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spin_briefly()
    gc.disable()  # until the model is loaded: what is imported and loaded stays
    from llmendpoint_server.engine.connection import Connection
    from llmendpoint_server.engine.process import serve
    from llmendpoint_server.engine.watch import leave_with_the_other_end

    # Never closed here: the watch would take that for the API process's end, and exit with its own code.
    stream = socket.socket(fileno=arguments.socket_fd)
    leave_with_the_other_end(stream, "api-process-watch")
    try:
        return serve(Connection(stream))
    except EOFError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
