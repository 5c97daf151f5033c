"""The command `llmendpoint-operator`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from pathlib import Path

import structlog

from llmendpoint_fit.core.hub import PUBLIC_HUB

from .app import run
from .core.endpoint.allowed import Allowed, parse_base
from .errors import OperatorError
from .settings import DEFAULT_RETENTION_SECONDS, Keda, Settings

EXAMPLES = """\
examples:
  llmendpoint-operator --kubeconfig ~/.kube/config                 outside the cluster
  llmendpoint-operator --watch-namespace team-a                    one namespace, with a Role in place of a ClusterRole
  llmendpoint-operator --gateway-url http://llmendpoint-gateway.llm.svc/v1
"""


def parse(argv: list[str] | None = None) -> Settings:
    """Settings from the command line. An invalid argument ends the process with code 2."""
    parser = argparse.ArgumentParser(
        prog="llmendpoint-operator",
        description="Turns LLMEndpoint resources into revisions, Deployments and Services.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cluster_flags(parser)
    _add_gateway_flags(parser)
    _add_image_and_model_flags(parser)
    _add_allowed_flags(parser)
    _add_keda_flags(parser)
    args = parser.parse_args(argv)
    if args.lease_seconds < 3:
        parser.error(f"--lease-seconds must be at least 3, got {args.lease_seconds}")
    return Settings(
        args.http_port, args.watch_namespace, args.kubeconfig, args.gateway_url, args.lease_seconds,
        args.gateway_namespace, args.prometheus_namespace, args.probe_image, args.gateway_state_port,
        args.hub_endpoint, args.model_image, args.cache_retention_seconds, _keda(parser, args), args.gateway_token,
         _allowed(parser, args),
    )  # fmt: skip


def _add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--http-port", type=int, default=8082, help="port of /healthz, /readyz and /metrics (default: 8082)")
    add("--watch-namespace", metavar="NS", help="look at one namespace only (default: all)")
    add("--kubeconfig", metavar="PATH", help="how to reach the API server (default: the pod's service account)")  # fmt: skip
    add("--lease-seconds", type=int, default=15, metavar="N",
        help="after so many seconds without a sign of life another process takes over (default: 15)")  # fmt: skip
    add("--prometheus-namespace", default="monitoring", metavar="NS",
        help="where the pods labelled app.kubernetes.io/name=prometheus are that may scrape the engines "
        "(default: monitoring)")  # fmt: skip


def _add_gateway_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--gateway-url", metavar="URL", help="what status.url shows (default: the endpoint's own Service)")
    add("--gateway-namespace", metavar="NS",
        help="where the gateway's pods are (default: the operator's namespace)")  # fmt: skip
    add("--gateway-state-port", type=int, default=8081, metavar="PORT",
        help="port on which a gateway pod answers /state and /revisions (default: 8081)")  # fmt: skip
    add("--gateway-token", type=Path, metavar="FILE",
        help="our service account's token for the audience llmendpoint-gateway, by which gateways know us (default: none; "
        "then a gateway that is cut off from the API server is not told of later assignments)")  # fmt: skip


def _add_image_and_model_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--probe-image", metavar="IMAGE",
        help="image with llmendpoint-probe, for LLMRuntimes with readiness: Generation that name none; this one has it")  # fmt: skip
    add("--hub-endpoint", default=PUBLIC_HUB, metavar="URL",
        help="hub that is asked for the commits of hf:// models (default: %(default)s)")  # fmt: skip
    add("--model-image", metavar="IMAGE",
        help="image with llmendpoint-model, which downloads models, for LLMRuntimes that name none")  # fmt: skip
    add("--cache-retention-seconds", type=float, default=DEFAULT_RETENTION_SECONDS, metavar="N",
        help="how long a shared cache keeps a model that no revision uses (default: 604800, a week)")  # fmt: skip


def _add_allowed_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(
        "what users may name in an LLMEndpoint; each may be given several times"
    ).add_argument
    add("--allowed-hub", action="append", default=[], metavar="URL",
        help="base URL of a hub or object store, beside --hub-endpoint, that models are downloaded from; an endpoint "
        "chooses it by HF_ENDPOINT or AWS_ENDPOINT_URL in spec.runtime.env")  # fmt: skip
    add("--allowed-judge-host", action="append", default=[], metavar="HOST[:PORT]",
        help="host that the operator may ask as a judge; without a port, the one of http or https (default: none)")  # fmt: skip
    add("--allowed-judge-namespace", action="append", default=[], metavar="NS",
        help="namespace whose endpoints may judge revisions of other namespaces, * for all (default: none)")  # fmt: skip


def _allowed(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Allowed:
    for url in args.allowed_hub:
        if parse_base(url) is None:
            parser.error(
                f"--allowed-hub {url}: write a base URL such as https://hub.example.com, without user info or query"
            )
    hubs = tuple(dict.fromkeys((args.hub_endpoint, *args.allowed_hub)))
    return Allowed(hubs, tuple(args.allowed_judge_host), tuple(args.allowed_judge_namespace))


def _add_keda_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("KEDA, for endpoints with autoscaling.provider: keda").add_argument
    add("--keda-address", metavar="HOST:PORT",
        help="where KEDA reaches this operator's external scaler; without it there is none")  # fmt: skip
    add("--keda-port", type=int, default=8083, metavar="PORT",
        help="port of the external scaler, gRPC with TLS (default: 8083)")  # fmt: skip
    add("--keda-tls", metavar="DIR",
        help="folder with tls.crt and tls.key of the scaler, and ca.crt, by which KEDA's certificate must be signed")  # fmt: skip
    add("--keda-authentication", default="llmendpoint-operator", metavar="NAME",
        help="ClusterTriggerAuthentication with caCert, tlsClientCert and tlsClientKey for KEDA (default: %(default)s)")  # fmt: skip


def _keda(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Keda | None:
    if args.keda_address is None:
        return None
    if args.keda_tls is None:
        parser.error("--keda-address needs --keda-tls: who asks is known by a certificate alone")
    tls = Path(args.keda_tls)
    missing = [name for name in ("tls.crt", "tls.key", "ca.crt") if not (tls / name).is_file()]
    if missing:
        parser.error(f"--keda-tls: {tls} has no {' and no '.join(missing)}")
    return Keda(args.keda_address, args.keda_authentication, args.keda_port, tls)


def configure_logging() -> None:
    """Write one JSON object a line to standard error, for the operator's log lines and those of libraries."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.format_exc_info,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
        foreign_pre_chain=shared,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def collect_garbage_seldom() -> None:
    """Run full garbage collections a tenth as often. The caches are trees of hundreds of thousands of
    objects. Traversing them blocks the process for half a second at 1,000 endpoints and frees nothing."""
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, 10 * old)


def main() -> int:
    """Entry point. Returns 0 after SIGTERM or SIGINT, 1 after an OperatorError such as LeadershipLost."""
    settings = parse()
    configure_logging()
    collect_garbage_seldom()
    try:
        asyncio.run(run(settings))
    except OperatorError as error:
        structlog.get_logger().error("the operator ends", reason=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
