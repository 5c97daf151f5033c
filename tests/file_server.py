"""What stubs of file servers have in common: ranges, and the ways in which a download goes wrong."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler


@dataclass
class Faults:
    """By a file's name. Everything that is counted goes down with each request until it is used up."""

    cut_after: dict[str, int] = field(default_factory=dict)
    """the connection ends after so many bytes of the answer"""
    cuts: dict[str, int] = field(default_factory=dict)
    """how often that happens; absent: always"""
    truncated: dict[str, int] = field(default_factory=dict)
    """the file ends there, whatever the listing says"""
    corrupt: dict[str, int] = field(default_factory=dict)
    """so many answers have a wrong byte"""
    gate: threading.Event | None = None
    """answers stop in the middle until it is set"""
    reached: threading.Event = field(default_factory=threading.Event)
    """set when an answer has come to its middle"""
    ranges: list[tuple[str, int]] = field(default_factory=list)
    """name and first byte of each answered request"""


def send_range(
    handler: BaseHTTPRequestHandler, faults: Faults, name: str, content: bytes, headers: dict[str, str]
) -> None:
    """The answer to a GET or HEAD of a file, from the byte that is asked for."""
    content = content[: faults.truncated.get(name, len(content))]
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    start = int(asked[1]) if asked else 0
    if asked and start >= len(content):
        handler.send_response(416)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    body = content[start:]
    handler.send_response(206 if asked else 200)
    if asked:
        headers = {**headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
    for key, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(key, value)
    handler.end_headers()
    if handler.command != "GET":
        return
    faults.ranges.append((name, start))
    if faults.corrupt.get(name, 0) > 0:
        faults.corrupt[name] -= 1
        body = bytes([body[0] ^ 255]) + body[1:]
    _send(handler, faults, name, body)


def _send(handler: BaseHTTPRequestHandler, faults: Faults, name: str, body: bytes) -> None:
    cut = faults.cut_after.get(name)
    if cut is not None and faults.cuts.get(name, 1) > 0:
        if name in faults.cuts:
            faults.cuts[name] -= 1
        handler.wfile.write(body[:cut])
        handler.close_connection = True
        return
    middle = len(body) // 2
    handler.wfile.write(body[:middle])
    if faults.gate is not None and middle:
        handler.wfile.flush()
        faults.reached.set()
        faults.gate.wait(30)
    handler.wfile.write(body[middle:])
