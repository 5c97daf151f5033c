"""How long the embedded Kubernetes takes to start, once built: `make bench-cluster`."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from tests.bench.results import Result, write
from tests.cluster import Cluster, start_control_plane, start_node
from tests.cluster.binaries import build_all
from tests.cluster.errors import ClusterError
from tests.cluster.node import prepare

_ROUNDS = 3


def measure(what: str, start: Callable[[], Cluster]) -> float:
    """Median seconds from the call until the cluster can be worked with."""
    taken = []
    for round_number in range(1, _ROUNDS + 1):
        began = time.monotonic()
        cluster = start()
        taken.append(time.monotonic() - began)
        cluster.stop()
        print(f"  {what}, start {round_number} of {_ROUNDS}: {taken[-1]:.1f} s", flush=True)
    return statistics.median(taken)


def main(argv: Sequence[str] | None = None) -> int:
    """Start each kind three times; write build/bench/cluster.json."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.cluster",
        description=__doc__,
        epilog="example:\n  python -m tests.bench.cluster",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    try:
        build_all()
        control_plane = measure("control plane", lambda: start_control_plane("bench"))
        prepare()
        node = measure("whole node", lambda: start_node("bench"))
    except ClusterError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    note = f"median of {_ROUNDS}"
    write(
        "cluster",
        [
            Result(
                "control plane start, until a default service account exists",
                control_plane,
                "s",
                against=note,
            ),
            Result("whole node start, until Ready with accelerators and DNS", node, "s", against=note),
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
