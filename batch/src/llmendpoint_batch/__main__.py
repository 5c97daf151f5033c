"""The program `llmendpoint-batch`."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

import uvloop

from llmendpoint_batch.core.bounds import Bounds
from llmendpoint_batch.errors import BadUrl, InUse
from llmendpoint_batch.logs import configure_logs
from llmendpoint_batch.server import serve
from llmendpoint_batch.settings import Settings

EXAMPLES = """examples:
  llmendpoint-batch --data /var/lib/llmendpoint-batch --gateway http://llmendpoint-gateway.llmendpoint.svc
  LLMENDPOINT_BATCH_DATABASE_URL=postgresql://… llmendpoint-batch --gateway http://llmendpoint-gateway.llmendpoint.svc
  llmendpoint-batch --data ./data --gateway http://127.0.0.1:8080 --port 8090 --state-port 8091 --concurrency 4
"""
DATABASE_URL = "LLMENDPOINT_BATCH_DATABASE_URL"
"""The environment's, because others can read a process's arguments."""
MIB = 1 << 20


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmendpoint-batch",
        description="Files, batches and stored responses in OpenAI's shape. Sends the lines of a batch to the gateway at the lowest priority.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        metavar="PATH",
        help=f"folder of SQLite and the files; not used where {DATABASE_URL} is set",
    )
    add("--gateway", required=True, metavar="URL", help="base URL of the gateway, without /v1")
    add("--host", default="0.0.0.0", help="address to listen on (0.0.0.0)")
    add("--port", type=int, default=8080, help="the API (8080)")
    add("--state-port", type=int, default=8081, help="/healthz and /metrics (8081)")
    add(
        "--concurrency",
        type=_positive,
        default=8,
        metavar="N",
        help="lines, and background responses, under way for one endpoint (8)",
    )
    add(
        "--request-seconds", type=_positive, default=1800, metavar="S", help="the longest time for one answer (1800)"
    )  # fmt: skip
    add(
        "--retention-days", type=_days, default=30.0, metavar="D",
        help="after which files, responses, and batches that have ended, are deleted (30)",
    )  # fmt: skip
    add("--file-mib", type=_positive, default=200, metavar="N", help="the largest upload (200)")
    add("--storage-mib", type=_positive, default=8192, metavar="N", help="all files together (8192)")
    add("--lines", type=_positive, default=50_000, metavar="N", help="the most lines of a batch (50000)")
    add("--line-kib", type=_positive, default=1024, metavar="N", help="the longest line (1024)")
    return parser


def read_settings(arguments: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
    return Settings(
        data=arguments.data,
        gateway=arguments.gateway,
        host=arguments.host,
        port=arguments.port,
        state_port=arguments.state_port,
        concurrency=arguments.concurrency,
        request_seconds=arguments.request_seconds,
        retention_seconds=arguments.retention_days * 86400,
        database=(environment or {}).get(DATABASE_URL) or None,
        bounds=Bounds(
            arguments.file_mib * MIB,
            arguments.storage_mib * MIB,
            arguments.lines,
            arguments.line_kib << 10,
        ),
    )


def main() -> None:
    parser = make_parser()
    settings = read_settings(parser.parse_args(), os.environ)
    if settings.data is None and settings.database is None:
        parser.error(f"--data is missing; only with the environment's {DATABASE_URL} is it not needed")
    configure_logs()
    try:
        uvloop.run(serve(settings))
    except (InUse, BadUrl) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1 << 40:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return number


def _days(text: str) -> float:
    number = float(text)
    if not 0 < number <= 36_500:
        raise argparse.ArgumentTypeError(f"must be above 0, at most 36500 (a hundred years), got {text}")
    return number


if __name__ == "__main__":
    main()
