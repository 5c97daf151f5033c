"""`kubectl llm rollout plan`: asks the gateways for the traffic, unless it is given."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from .client import Client, Json
from .core.objects import name_of, status_of
from .core.observe_spec import asked_by
from .core.rollout_plan import Plan, Traffic, make_plan
from .core.traffic import traffic_between
from .core.tree import as_json
from .errors import BadUsage, CliError, NotFound, Unreachable
from .options import Context, Format, Kubeconfig, Namespace, Output, Session, print_json
from .plan import option, read_manifests

EXAMPLES = """Exit codes: 0 each limit can be decided; 1 one cannot; 2 bad usage; 3 no such endpoint; 6 no access to the cluster.

Examples:

\b
  kubectl llm rollout plan chat                             with the traffic of now
  kubectl llm rollout plan chat --requests-per-second 5     with another traffic
  kubectl llm rollout plan -f chat.yaml --requests-per-second 5 --error-rate 0.001
  kubectl llm rollout plan chat -o json | jq '.[].rows[] | select(.why != "") | .why'
"""

Filename = Annotated[
    Path | None,
    option("File with LLMEndpoint manifests: read them, not those of the cluster.", "--filename", "-f", metavar="FILE"),
]  # fmt: skip
NameOrFile = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Name of the LLMEndpoint.  [default: all of FILE]", show_default=False),
]  # fmt: skip
RequestsPerSecond = Annotated[
    float | None,
    option("Requests that callers send.  [default: measured]", metavar="N", minimum=0, maximum=1e6),
]
ErrorRate = Annotated[
    float | None,
    option(
        "Share of the requests that fail now.  [default: that of the active revision since the gateways started; 0 with --requests-per-second]",
        metavar="SHARE",
        minimum=0,
        maximum=1,
    ),
]
Measure = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=1, max=3600, help="Seconds for which the traffic is measured."),
]
GatewayNamespace = Annotated[
    str | None, option("Namespace of the gateway's pods.  [default: search all]", metavar="NS")
]


def plan(
    name: NameOrFile = None,
    filename: Filename = None,
    requests_per_second: RequestsPerSecond = None,
    error_rate: ErrorRate = None,
    measure: Measure = 10,
    gateway_namespace: GatewayNamespace = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say before a rollout which limits can be decided. For each limit: how many requests and seconds it takes with this traffic,
    and the smallest change that would be seen within maxDuration. For maxIncrease and maxRatio it counts the old revision's requests of
    `duration` seconds. The operator may also count its last hours, if its figures changed little in them."""
    if name is None and filename is None:
        raise BadUsage("name one endpoint: NAME, or -f FILE with its manifest")
    cluster = filename is None or requests_per_second is None
    session = Session(namespace, context, kubeconfig) if cluster else None
    default = session.namespace if session is not None else namespace or ""
    plans = []
    for endpoint in _endpoints(session, name, filename):
        where, called = endpoint["metadata"].get("namespace") or default, name_of(endpoint)
        if requests_per_second is None:
            assert session is not None
            traffic = _measured(session.client, endpoint, where, called, measure, gateway_namespace)
        else:
            traffic = Traffic(requests_per_second, 0.0)
        rate = traffic.error_rate if error_rate is None else error_rate
        plans.append(
            _plan(endpoint, f"{where}/{called}".lstrip("/"), Traffic(traffic.requests_per_second, rate))
        )
    _print(plans, output)
    if not all(one.decidable for one in plans):
        raise typer.Exit(CliError.exit_code)


def _endpoints(session: Session | None, name: str | None, filename: Path | None) -> Iterator[Json]:
    if filename is None:
        assert session is not None
        assert name is not None
        yield session.client.endpoint(session.namespace, name)
        return
    found = [
        one for one in read_manifests(filename) if name in (None, (one.get("metadata") or {}).get("name"))
    ]
    if not found:
        raise BadUsage(f"{filename} holds no LLMEndpoint {name}")
    yield from found


def _plan(endpoint: Json, called: str, traffic: Traffic) -> Plan:
    try:
        asked = asked_by(endpoint["spec"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadUsage(f"{called}: this LLMEndpoint cannot be read: {error}") from None
    return make_plan(called, asked, traffic)


def _measured(
    client: Client, endpoint: Json, namespace: str, name: str, seconds: float, gateways: str | None
) -> Traffic:
    """Read the gateways' counters twice."""
    pods = client.gateway_pods(gateways)
    if not pods:
        where = f" in namespace {gateways}" if gateways else ""
        raise NotFound(f"no running gateway pod{where}; give --requests-per-second")
    print(f"measuring the traffic of {namespace}/{name} for {seconds:g} s …", file=sys.stderr, flush=True)
    before, began = _pages(client, pods, namespace, name), time.monotonic()
    time.sleep(seconds)
    after = _pages(client, pods, namespace, name)
    active = status_of(endpoint).get("activeRevision")
    return traffic_between(before, after, time.monotonic() - began, active)


def _pages(client: Client, pods: list[Json], namespace: str, name: str) -> dict[str, Json]:
    """Counters by gateway. Raises Unreachable if no gateway answers."""
    pages, last = {}, ""
    for pod in pods:
        try:
            pages[name_of(pod)] = client.revisions(pod, namespace, name)
        except (Unreachable, NotFound) as error:
            last = str(error)
    if not pages:
        raise Unreachable(f"none of {len(pods)} gateways answers: {last}")
    if len(pages) < len(pods):
        print(f"{len(pods) - len(pages)} of {len(pods)} gateways do not answer: {last}", file=sys.stderr)
    return pages


def _print(plans: list[Plan], output: Output) -> None:
    if output is Output.JSON:
        print_json(as_json(plans))
        return
    from .render import make_console  # rich: not needed for JSON
    from .render_rollout_plan import plan_view

    for one in plans:
        make_console().print(plan_view(one))
