"""`kubectl llm scale`."""

from __future__ import annotations

from typing import Annotated

import typer

from .core.scaling import hopeless, reached, refusal
from .errors import CliError, Refused
from .follow import readings
from .options import Context, Format, Kubeconfig, Name, Namespace, Output, Patience, Session, print_json

EXAMPLES = """Exit codes: 0 written, and with --wait ready; 1 this number cannot be reached; 3 no such endpoint; 4 autoscaling sets the number; 5 timed out.

Examples:

\b
  kubectl llm scale chat --replicas 3
  kubectl llm scale chat --replicas 0 -n team-a      removes the pods and keeps the rest
  kubectl llm scale chat --replicas 3 --wait --timeout 1800
"""


def scale(
    name: Name,
    replicas: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="Number of replicas.", show_default=False)
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until exactly this many replicas are ready.")
    ] = False,
    timeout: Patience = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Set the number of replicas (spec.replicas)."""
    session = Session(namespace, context, kubeconfig)
    where = f"{session.namespace}/{name}"
    endpoint = session.client.endpoint(session.namespace, name)
    why = refusal(endpoint)
    if why is not None:
        raise Refused(f"{where}: {why}")
    before = int(endpoint["spec"].get("replicas", 1))
    session.client.scale(session.namespace, name, replicas)
    if wait:
        _wait(session, name, replicas, timeout)
    if output is Output.JSON:
        print_json({"endpoint": where, "before": before, "replicas": replicas, "reached": wait})
        return
    print(f"{where}: replicas {before} -> {replicas}" + (", all ready" if wait and replicas else ""))


def _wait(session: Session, name: str, count: int, timeout: float | None) -> None:
    """Wait until the number is reached. Raises CliError if it cannot be reached, TimedOut if it takes too long."""
    waited_for = f"{count} ready replicas of {session.namespace}/{name}"
    for endpoint in readings(lambda: session.client.endpoint(session.namespace, name), timeout, waited_for):
        if reached(endpoint, count):
            return
        why = hopeless(endpoint)
        if why is not None:
            raise CliError(f"{session.namespace}/{name}: {why}")
