"""The commands `picker` and `envoy` run the two processes of a gateway pod. `drain` runs before the pod stops."""

import argparse
import gc
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

# Must be set before grpc is imported: gRPC's fork handlers cost time and deadlock child processes.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import structlog

from llmendpoint_gateway.core.identity.authentication import Authentication
from llmendpoint_gateway.errors import EnvoyNotFound, NoAccess
from llmendpoint_gateway.logs import configure_logs
from llmendpoint_gateway.serve.envoy.drain import LEAST_SECONDS, run_drain
from llmendpoint_gateway.serve.envoy.open_files import raise_open_file_limit
from llmendpoint_gateway.serve.envoy.process import run_envoy

TRACES_VARIABLE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
DEFAULT_SOCKET = Path("/run/gateway/control.sock")
EXAMPLES = """examples:
  llmendpoint-gateway picker --socket /run/gateway/control.sock --http-port 8081
  llmendpoint-gateway envoy --socket /run/gateway/control.sock --port 8080
  llmendpoint-gateway drain --socket /run/gateway/control.sock --seconds 300
  llmendpoint-gateway picker --socket ./control.sock --kubeconfig ~/.kube/config --watch-namespace team-a
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmendpoint-gateway",
        description="The way in to LLM endpoints: Envoy carries the bytes, the picker decides where they go.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    picker = commands.add_parser("picker", help="decide where requests go, and configure Envoy")
    picker.add_argument(
        "--http-port", type=int, default=8081, help="/healthz, /readyz, /state, /metrics (8081)"
    )
    picker.add_argument("--kubeconfig", type=Path, metavar="PATH", help="for use outside a cluster")
    picker.add_argument("--watch-namespace", metavar="NS", help="serve one namespace (all)")
    picker.add_argument(
        "--hold-seconds", type=float, default=50.0, metavar="S",
        help="how long a request waits for a replica, below the patience of a load balancer in front; 0: not at all (50)",
    )  # fmt: skip
    picker.add_argument(
        "--operator", metavar="USER",
        help="user whose token may tell of later epochs, system:serviceaccount:NAMESPACE:NAME (nobody)",
    )  # fmt: skip
    picker.add_argument(
        "--trusted-hops", type=int, default=0, metavar="N",
        help="proxies in front whose x-forwarded-for tells the callers' addresses (0: the peer is the caller)",
    )  # fmt: skip
    picker.add_argument(
        "--otlp-traces-endpoint", type=_collector, metavar="URL", default=os.environ.get(TRACES_VARIABLE) or None,
        help=f"send a span for each request to a collector by OTLP over HTTP, such as http://collector:4318/v1/traces ({TRACES_VARIABLE}, or nowhere)",
    )  # fmt: skip
    picker.add_argument(
        "--trace-sampling", type=_share, default=1.0, metavar="SHARE",
        help="of the requests without the header traceparent, whose sender decides otherwise (1)",
    )  # fmt: skip
    envoy = commands.add_parser("envoy", help="write Envoy's bootstrap and become Envoy")
    envoy.add_argument("--port", type=int, default=8080, help="the OpenAI API (8080)")
    envoy.add_argument("--envoy-binary", type=Path, metavar="PATH", help="where it is not found by itself")
    envoy.add_argument(
        "--batch-service", type=_address, metavar="HOST:PORT", help="of /v1/files, /v1/uploads, /v1/batches and stored /v1/responses (not served)"
    )  # fmt: skip
    drain = commands.add_parser("drain", help="have clients go elsewhere, before the pod is stopped")
    drain.add_argument(
        "--seconds", type=float, default=300.0, metavar="S", help="after which what still runs is cut (300)"
    )
    drain.add_argument(
        "--least-seconds", type=float, default=LEAST_SECONDS, metavar="S",
        help=f"serve for so long at least, until no load balancer sends new connections ({LEAST_SECONDS:.0f})",
    )  # fmt: skip
    for command in (picker, envoy):
        command.add_argument(
            "--authentication", type=_mode, default=Authentication.OFF, metavar="MODE",
            help="API keys (LLMKeys): off, optional or required; the same for both (off)",
        )  # fmt: skip
        command.add_argument("--host", default="0.0.0.0", help="address to listen on (0.0.0.0)")
    for command in (picker, envoy, drain):
        command.add_argument(
            "--socket", type=Path, default=DEFAULT_SOCKET, help=f"between the two ({DEFAULT_SOCKET})"
        )
        command.epilog, command.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    return parser


def main() -> None:
    parser = make_parser()
    arguments = parser.parse_args()
    if arguments.command == "envoy" and arguments.batch_service and _asks_for_keys(arguments):
        parser.error("--batch-service needs --authentication off: the service does not keep callers apart")
    configure_logs()
    try:
        COMMANDS[arguments.command](arguments)
    except (EnvoyNotFound, NoAccess) as error:
        structlog.get_logger().error(str(error))
        sys.exit(2)


def run_envoy_command(arguments: argparse.Namespace) -> None:
    run_envoy(
        arguments.socket,
        arguments.host,
        arguments.port,
        arguments.envoy_binary,
        arguments.batch_service,
        _asks_for_keys(arguments),
    )


def _asks_for_keys(arguments: argparse.Namespace) -> bool:
    return arguments.authentication is not Authentication.OFF


def run_drain_command(arguments: argparse.Namespace) -> None:
    run_drain(arguments.socket, arguments.seconds, arguments.least_seconds)


def run_picker_command(arguments: argparse.Namespace) -> None:
    # Imported here so that `--help` and the Envoy process do not wait for grpc and the protos.
    import uvloop

    from llmendpoint_gateway.access import from_kubeconfig, in_cluster
    from llmendpoint_gateway.server import run_picker
    from llmendpoint_gateway.settings import Settings

    raise_open_file_limit()
    # Objects that exist now live until the end. A garbage collection that scanned them all would delay decisions by
    # tens of milliseconds.
    gc.freeze()
    settings = Settings(
        socket=arguments.socket,
        host=arguments.host,
        http_port=arguments.http_port,
        access=from_kubeconfig(arguments.kubeconfig) if arguments.kubeconfig else in_cluster(),
        namespace=arguments.watch_namespace,
        hold_seconds=arguments.hold_seconds,
        operator=arguments.operator,
        trusted_hops=arguments.trusted_hops,
        traces_endpoint=arguments.otlp_traces_endpoint,
        trace_sampling=arguments.trace_sampling,
        authentication=arguments.authentication,
    )
    uvloop.run(run_picker(settings))


def _mode(text: str) -> Authentication:
    try:
        return Authentication(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be off, optional or required, got {text[:40]!r}") from None


def _collector(text: str) -> str:
    try:
        url = urlsplit(text)
        fits = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in url.netloc:
        raise argparse.ArgumentTypeError(
            "must be a URL such as http://collector:4318/v1/traces; credentials go into OTEL_EXPORTER_OTLP_HEADERS"
        )
    return text


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text[:40]!r}")
    return value


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, got {text!r}")
    return text


COMMANDS = {"picker": run_picker_command, "envoy": run_envoy_command, "drain": run_drain_command}


if __name__ == "__main__":
    main()
