"""`kubectl llm top`: asks the gateways, through the API server's proxy to their pods."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .core.load import EndpointLoad, loads_of
from .core.tree import as_json
from .errors import BadUsage, NotFound, Unreachable
from .follow import readings
from .options import (
    AllNamespaces,
    Context,
    Format,
    Kubeconfig,
    NamesOrAll,
    Namespace,
    Output,
    Session,
    Watch,
    print_json,
)

EXAMPLES = """Examples:

\b
  kubectl llm top                       all endpoints of the namespace
  kubectl llm top chat -n team-a -w     one endpoint, live, until Ctrl-C
  kubectl llm top -A -o json | jq '.[] | select(.waiting > 0)'
"""


def top(
    name: NamesOrAll = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    gateway_namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NS", help="Namespace of the gateway's pods.  [default: search all]", show_default=False
        ),
    ] = None,
    watch: Watch = False,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the current load. Requests in the gateways, and what each engine reports."""
    if all_namespaces and (name or namespace):
        raise BadUsage("--all-namespaces shows all endpoints: leave out NAME and --namespace")
    session = Session(namespace, context, kubeconfig)

    def read() -> tuple[EndpointLoad, ...]:
        return _read(session, name, all_namespaces, gateway_namespace)

    if watch:
        _follow(read, output)
    elif output is Output.JSON:
        print_json(as_json(read()))
    else:
        from .render import make_console  # rich: not needed for JSON
        from .render_load import load_table

        make_console().print(load_table(read()))


def _read(
    session: Session, name: str | None, everywhere: bool, gateways: str | None
) -> tuple[EndpointLoad, ...]:
    client, namespace = session.client, None if everywhere else session.namespace
    endpoints = [client.endpoint(session.namespace, name)] if name else client.endpoints(namespace)
    pods = client.gateway_pods(gateways)
    if not pods:
        raise NotFound("no running gateway pod" + (f" in namespace {gateways}" if gateways else ""))
    demands, last = [], ""
    for pod in pods:
        try:
            demands.append(client.demand(pod))
        except (Unreachable, NotFound) as error:
            last = str(error)
    if not demands:
        raise Unreachable(f"none of {len(pods)} gateways answers: {last}")
    if len(demands) < len(pods):
        print(f"{len(pods) - len(demands)} of {len(pods)} gateways do not answer: {last}", file=sys.stderr)
    return loads_of(endpoints, demands)


def _follow(read: Callable[[], tuple[EndpointLoad, ...]], output: Output) -> None:
    if output is Output.JSON:
        last: tuple[EndpointLoad, ...] | None = None
        for loads in readings(read, None, ""):
            if loads != last:
                print_json(as_json(loads), indent=None)
            last = loads
        return
    from rich.live import Live

    from .render import make_console
    from .render_load import load_table

    console = make_console()
    if not console.is_terminal:
        raise BadUsage("--watch needs a terminal; for a pipe or a file use -w -o json")
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for loads in readings(read, None, ""):
            live.update(load_table(loads), refresh=True)
