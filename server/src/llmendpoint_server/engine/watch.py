"""A process that lives no longer than the one that started it."""

from __future__ import annotations

import os
import select
import socket
import threading

POLLRDHUP = getattr(select, "POLLRDHUP", 0)


def leave_with_the_other_end(stream: socket.socket, name: str) -> None:
    """End this process when the other end is closed, even in the middle of a load, a step or a collective. `name`: of the thread."""

    def watch() -> None:
        poll = select.poll()
        poll.register(stream, POLLRDHUP)
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name=name).start()
