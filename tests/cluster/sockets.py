"""Which addresses processes listen on, as the kernel tells it."""

import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

_TCP_LISTEN = "0A"
_TABLES = ("tcp", "tcp6", "udp", "udp6")


def listening_addresses(pids: Iterable[int]) -> dict[str, set[str]]:
    """Addresses that the processes' sockets are bound to, with the ports bound on each.

    TCP sockets count when they listen, UDP sockets when they are not connected to one peer.
    """
    inodes = {inode for pid in pids for inode in _socket_inodes(pid)}
    found: dict[str, set[str]] = {}
    for table in _TABLES:
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            local, remote, state, inode = fields[1], fields[2], fields[3], fields[9]
            bound = state == _TCP_LISTEN if table.startswith("tcp") else remote.endswith(":0000")
            if bound and inode in inodes:
                address, port = local.split(":")
                found.setdefault(_address(address), set()).add(f"{table}/{int(port, 16)}")
    return found


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue  # closed in the meantime
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes


def _address(hexadecimal: str) -> str:
    """An address as /proc writes it: 32-bit words in the machine's byte order."""
    words = [int(hexadecimal[i : i + 8], 16) for i in range(0, len(hexadecimal), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)
