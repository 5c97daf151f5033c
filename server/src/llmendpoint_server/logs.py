"""Logs: one JSON object per line on standard error. Never prompts, answers or secrets."""

from __future__ import annotations

import logging
import sys

import structlog

TERMINATION_LOG = "/dev/termination-log"


def configure() -> None:
    """Set up logging. Warnings of libraries get the same shape."""
    before: list[structlog.types.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    written: list[structlog.types.Processor] = [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=[*before, *written],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    libraries = logging.StreamHandler(sys.stderr)
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[meta, *written], foreign_pre_chain=before)
    )
    logging.getLogger().addHandler(libraries)


def log_fatal(cause: str, exit_code: int, termination_log: str = TERMINATION_LOG) -> None:
    """The last line before a non-zero exit, and the container's termination message if Kubernetes offers one."""
    structlog.get_logger().error(cause, exit_code=exit_code)
    sys.stderr.flush()
    try:
        # The file is never created: outside a container it does not exist, which is no error.
        with open(termination_log, "r+", encoding="utf-8") as file:
            file.truncate()
            file.write(cause)
    except OSError:
        pass
