"""What the machine gives a process: open files, of which each request holds two or three, and watches of files."""

import ctypes
import os
import resource
import sys

import structlog

ENOUGH = 65_535
log = structlog.get_logger()


def raise_open_file_limit() -> int:
    """Raise the soft limit to the hard one; warns if that is below what thousands of streams need. Returns the limit,
    or the largest number if there is none."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < ENOUGH:
        log.warning("the open-file limit is low", limit=hard, wanted=ENOUGH, effect="fewer open streams")
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def can_watch_files() -> bool:
    """Whether an inotify instance is left; warns if none is. Envoy aborts if it must watch a file and gets none. Linux
    gives each user id 128 on a node by default, and other pods may run under the same id."""
    instance: int = ctypes.CDLL(None).inotify_init1(os.O_CLOEXEC)
    if instance < 0:
        effect = "idle connections do not make way when few connections are left"
        log.warning("no inotify instance is left", sysctl="fs.inotify.max_user_instances", effect=effect)
        return False
    os.close(instance)
    return True
