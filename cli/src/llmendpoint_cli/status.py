"""`kubectl llm status`."""

from __future__ import annotations

from datetime import UTC, datetime

from .core.objects import full_name
from .core.presence import view_operator
from .core.tree import EndpointView, as_json, view_endpoint
from .errors import BadUsage
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
  kubectl llm status                     all endpoints of the namespace
  kubectl llm status chat -n team-a -w   one endpoint, live, until Ctrl-C
  kubectl llm status -A -o json | jq '.[] | select(.phase != "Ready")'
  kubectl llm status chat -w -o json     one line of JSON for every change
"""


def status(
    name: NamesOrAll = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    watch: Watch = False,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what endpoints do. A tree for each of them: its revisions, its pods, and why one is not ready."""
    if all_namespaces and (name or namespace):
        raise BadUsage("--all-namespaces shows all endpoints: leave out NAME and --namespace")
    session = Session(namespace, context, kubeconfig)
    if not watch:
        where = "any namespace" if all_namespaces else f"namespace {session.namespace}"
        _print_once(_read(session, name, all_namespaces), where, output)
    elif output is Output.JSON:
        _print_changes(session, name, all_namespaces)
    else:
        _show_live(session, name, all_namespaces)


def _read(session: Session, name: str | None, everywhere: bool) -> list[EndpointView]:
    """The endpoints, sorted by name. Raises NotFound if the named one does not exist."""
    client, namespace = session.client, None if everywhere else session.namespace
    found = [client.endpoint(session.namespace, name)] if name else client.endpoints(namespace)
    if not found:
        return []
    pods, operator = client.pods(namespace, name), view_operator(*client.operator_leases())
    return [view_endpoint(endpoint, pods, operator) for endpoint in sorted(found, key=full_name)]


def _print_once(views: list[EndpointView], where: str, output: Output) -> None:
    if output is Output.JSON:
        print_json(as_json(views))
    elif views:
        from .render import make_console, status_trees  # rich: not needed for JSON

        make_console().print(status_trees(views, datetime.now(UTC)))
    else:
        print(f"no LLMEndpoint in {where}")


def _print_changes(session: Session, name: str | None, everywhere: bool) -> None:
    last: list[EndpointView] | None = None
    for views in readings(lambda: _read(session, name, everywhere), None, ""):
        if views != last:
            print_json(as_json(views), indent=None)
        last = views


def _show_live(session: Session, name: str | None, everywhere: bool) -> None:
    from rich.live import Live

    from .render import make_console, status_trees

    console = make_console()
    if not console.is_terminal:
        raise BadUsage("--watch needs a terminal; for a pipe or a file use -w -o json")
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for views in readings(lambda: _read(session, name, everywhere), None, ""):
            live.update(status_trees(views, datetime.now(UTC)), refresh=True)
