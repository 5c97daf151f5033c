"""`make demo` and `make demo-down`."""

import argparse
import sys
from collections.abc import Sequence

from tests import ending
from tests.cluster.errors import ClusterError
from tests.demo import clusters, down, up

EXAMPLES = """examples:
  python -m tests.demo up                     an embedded Kubernetes on this machine (root), left running at the end
  python -m tests.demo down                   remove it, and nothing else
  DEMO_KUBECONFIG=~/.kube/config DEMO_IMAGES=registry.example/llm python -m tests.demo up
                                              a cluster of yours, with images that it can pull
"""


def go_on() -> str:
    """The commands that continue after an error, with the cluster that the user named."""
    up_again, remove = clusters.typed("demo"), clusters.typed("demo-down")
    return f"to go on, with all that was built and downloaded: {up_again} (to remove what there is: {remove})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error is one message on standard error and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo",
        description="The whole product on one machine: cluster, chart, endpoint, a streamed answer.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["up", "down"])
    command = {"up": up.run, "down": down.run}[parser.parse_args(argv).command]
    ending.end_on_signals()
    try:
        command()
    except ClusterError as error:
        print(f"demo: {error}\n{go_on()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ndemo: stopped\n{go_on()}", file=sys.stderr)
        return ending.exit_status()
    return 0


if __name__ == "__main__":
    sys.exit(main())
