"""The open-file limit: each request holds two or three descriptors, and the usual soft limit is 1,024."""

import resource
import sys

import structlog

ENOUGH = 65_535
log = structlog.get_logger()


def raise_open_file_limit() -> int:
    """Soft limit up to the hard one; warns when that is below what thousands of streams need. Returns it,
    the largest number where there is none."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < ENOUGH:
        log.warning("the open-file limit is low", limit=hard, wanted=ENOUGH, effect="fewer open streams")
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
