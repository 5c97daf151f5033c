"""The embedded Kubernetes from the command line."""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence

from tests import ending
from tests.cluster import images, lifecycle, node, progress
from tests.cluster import instance as instances
from tests.cluster.api import Cluster
from tests.cluster.errors import ClusterError

_EXAMPLES = """examples:
  python -m tests.cluster up                         a whole node with 4 fake accelerators (root)
  python -m tests.cluster up --gpus 8                the same with 8
  python -m tests.cluster up --control-plane         an API server alone, ready in seconds, no root needed
  eval "$(python -m tests.cluster env)"; kubectl get nodes
  LLMENDPOINT_CLUSTER=node pytest -m e2e             tests on a running cluster, which saves its start
  python -m tests.cluster prepare                    only build and install what `up` and the images need
  python -m tests.cluster status
  python -m tests.cluster down                       end it and remove what it made, and only that
"""
_DEFAULT_NAMES = {True: "control-plane", False: "node"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error is one message on standard error and exit code 1."""
    arguments = _parser().parse_args(argv)
    ending.end_on_signals()
    name = arguments.name or _DEFAULT_NAMES[arguments.control_plane]
    commands = {"up": _up, "down": _down, "status": _status, "env": _env, "prepare": _prepare}
    try:
        return commands[arguments.command](name, arguments)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        print(f"to go on: python -m tests.cluster {shlex.join(argv or sys.argv[1:])}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cluster: stopped; what a start had begun is removed, what was built is kept", file=sys.stderr)
        return ending.exit_status()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster",
        description="A real Kubernetes from package registries alone, for tests and the demo.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "up": "start a cluster, or do nothing where it runs",
        "down": "end a cluster and remove what it made",
        "prepare": "build the programs, the images and the server's site-packages into the cache",
        "status": "show the clusters of this machine and their processes",
        "env": "print the shell commands that point kubectl and helm at a cluster",
    }
    for command, text in helps.items():
        sub = commands.add_parser(command, help=text, description=text, epilog=_EXAMPLES)
        sub.formatter_class = argparse.RawDescriptionHelpFormatter
        sub.add_argument("--name", help="the cluster's name (default: node, or control-plane)")
        sub.add_argument("--control-plane", action="store_true", help="API server and controllers, no node")
        if command == "up":
            sub.add_argument(
                "--gpus", type=int, default=4, metavar="N", help="fake accelerators (default: 4)"
            )
    return parser


def _up(name: str, arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    running = lifecycle.find_running(name)
    if running:
        print(f"cluster {name!r} runs already")
        _print_use(running)
        return 0
    if arguments.control_plane:
        cluster = lifecycle.start_control_plane(name, owned=False)
    else:
        print(node.announcement())
        cluster = lifecycle.start_node(name, gpus=arguments.gpus, owned=False)
    print(f"cluster {name!r} is up after {time.monotonic() - started:.1f} s")
    _print_use(cluster)
    return 0


def _down(name: str, _: argparse.Namespace) -> int:
    if name not in {instance.name for instance in instances.load_all()}:
        print(f"there is no cluster {name!r} on this machine, so nothing to remove")
        return 0
    lifecycle.down(instances.load(name))
    print(f"cluster {name!r} is gone")
    return 0


def _status(_: str, __: argparse.Namespace) -> int:
    lines = []
    for instance in instances.load_all():
        kind = f"node with {instance.gpus} accelerators" if instance.has_node else "control plane"
        state = "up" if lifecycle.is_up(instance) else "down"
        lines.append(f"{instance.name}: {kind}, {state}, {instance.api_url}, {instance.folder}")
        lines += [
            f"  {process.name:<24} {process.pid if process.alive else 'ended'}"
            for process in instance.processes.all()
        ]
    print("\n".join(lines) or "no cluster on this machine")
    return 0


def _env(name: str, _: argparse.Namespace) -> int:
    cluster = lifecycle.connect(name)
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    print(f'export PATH={shlex.quote(str(cluster.bin))}:"$PATH"')
    return 0


def _prepare(_: str, __: argparse.Namespace) -> int:
    images.prepare_all()
    return 0


def _print_use(cluster: Cluster) -> None:
    progress.say(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.bin}:$PATH")


if __name__ == "__main__":
    sys.exit(main())
