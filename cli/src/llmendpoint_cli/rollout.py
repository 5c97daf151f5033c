"""`kubectl llm rollout …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from .actions import ask, await_answer
from .client import Json
from .core.history import history_of
from .core.objects import Object, status_of
from .core.observed import ASCII, BLOCKS, is_news, observation_lines, observation_of
from .core.progress import Progress, Verdict, progress_of, said
from .core.requests import Action, aborted_revision, promoted_revision, restarted_revision, undone_to
from .core.tree import as_json
from .errors import CliError, Refused
from .follow import readings
from .options import (
    Answering,
    Context,
    Format,
    Kubeconfig,
    Name,
    Namespace,
    Output,
    Patience,
    Session,
    print_json,
)
from .rollout_plan import EXAMPLES as PLAN_EXAMPLES
from .rollout_plan import plan

app = typer.Typer(
    no_args_is_help=True,
    help="Follow and control rollouts. To promote, abort, undo or restart one is a request to the operator: an "
    "annotation, which GitOps tools leave alone. Only undo also changes the spec.",
)

app.command("plan", epilog=PLAN_EXAMPLES)(plan)

STATUS_EXAMPLES = """Exit codes: 0 done; 1 rolled back, rejected or stalled; 3 no such endpoint; 5 timed out.

Examples:

\b
  kubectl apply -f chat.yaml && kubectl llm rollout status chat --timeout 1800
  kubectl llm rollout status chat --no-follow -o json
"""
UNDO_EXAMPLES = """Examples:

\b
  kubectl llm rollout undo chat                  to the previous revision
  kubectl llm rollout history chat               lists the revisions
  kubectl llm rollout undo chat --to-revision 3
"""


def examples(command: str) -> str:
    """Examples for a command that takes only a name."""
    return f"Examples:\n\n\b\n  kubectl llm rollout {command} chat\n  kubectl llm rollout {command} chat -n team-a -o json\n"


@app.command("status", epilog=STATUS_EXAMPLES)
def status(
    name: Name,
    namespace: Namespace = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--no-follow", help="Wait for the result, or print the current state once."),
    ] = True,
    timeout: Patience = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Follow a rollout to its result. Prints each step, the evidence while it is observed, and the reason of a failure."""
    session = Session(namespace, context, kubeconfig)
    last: Progress | None = None
    shown: Object | None = None
    started = time.monotonic()
    for endpoint in readings(
        lambda: session.client.endpoint(session.namespace, name),
        timeout,
        f"the result of the rollout of {session.namespace}/{name}",
    ):
        progress, observation = progress_of(endpoint), observation_of(endpoint)
        if progress != last or is_news(observation, shown):
            _say(endpoint, progress, time.monotonic() - started, output, repeated=progress == last)
            shown = observation
        if progress.verdict is Verdict.FAILED:
            raise typer.Exit(CliError.exit_code)
        if progress.verdict is Verdict.DONE or not follow:
            return
        last = progress


def _say(endpoint: Json, progress: Progress, seconds: float, output: Output, repeated: bool) -> None:
    """`repeated`: only the observation is new."""
    observation = observation_of(endpoint)
    if output is Output.JSON:
        known = status_of(endpoint)
        more = {key: known[key] for key in ("activeRevision", "targetRevision") if key in known}
        watched = {"observation": observation} if observation else {}
        print_json({**as_json(progress), **more, **watched}, indent=None)
        return
    lines = observation_lines(observation, _symbols()) if observation else ()
    if repeated and lines:
        progress, lines = replace(progress, line=lines[0]), lines[1:]
    print("\n".join((said(progress, seconds), *(f"{'':10}{line}" for line in lines))), flush=True)


def _symbols() -> str:
    """Those that the output can show."""
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BLOCKS


@app.command("promote", epilog=examples("promote"))
def promote(
    name: Name,
    namespace: Namespace = None,
    timeout: Answering = 30,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let the new revision take over. It must wait for promotion, or be observed."""
    session = Session(namespace, context, kubeconfig)
    _ask(session, name, Action.PROMOTE, promoted_revision, timeout, output)


@app.command("abort", epilog=examples("abort"))
def abort(
    name: Name,
    namespace: Namespace = None,
    timeout: Answering = 30,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Stop the rollout. The previous revision gets all requests again at once."""
    session = Session(namespace, context, kubeconfig)
    _ask(session, name, Action.ABORT, aborted_revision, timeout, output)


@app.command("undo", epilog=UNDO_EXAMPLES)
def undo(
    name: Name,
    to_revision: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            help="Number or hash of a revision that is kept.  [default: the previous one]",
            show_default=False,
        ),
    ] = None,
    namespace: Namespace = None,
    timeout: Answering = 30,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Go back to an earlier revision. Writes its spec back; with GitOps, revert the commit instead."""
    session = Session(namespace, context, kubeconfig)

    def target(endpoint: Json) -> str:
        return undone_to(
            endpoint, history_of(endpoint, session.client.records(session.namespace, name)), to_revision
        )

    _ask(session, name, Action.UNDO, target, timeout, output)


@app.command("restart", epilog=examples("restart"))
def restart(
    name: Name,
    namespace: Namespace = None,
    timeout: Answering = 30,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Roll out the current spec again. Takes the current runtime, and replaces all pods."""
    session = Session(namespace, context, kubeconfig)
    _ask(session, name, Action.RESTART, restarted_revision, timeout, output)


@app.command("history", epilog=examples("history"))
def history(
    name: Name,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List the revisions that are kept. Also shows what changed from one to the next."""
    session = Session(namespace, context, kubeconfig)
    endpoint = session.client.endpoint(session.namespace, name)
    entries = history_of(endpoint, session.client.records(session.namespace, name))
    if output is Output.JSON:
        print_json(as_json(entries))
    elif entries:
        from .render import (
            history_table,
            make_console,
        )  # rich: a third of the command's time, and JSON does not need it

        make_console().print(history_table(entries, datetime.now(UTC)))
    else:
        print(f"{session.namespace}/{name} has no revision yet", file=sys.stderr)


def _ask(
    session: Session, name: str, action: Action, about: Callable[[Json], str], timeout: float, output: Output
) -> None:
    """Send the request, wait, and print the answer. Raises Refused with the operator's words."""
    namespace = session.namespace
    request = ask(session.client, namespace, name, action, about)
    answer = await_answer(session.client, namespace, name, request, timeout)
    if output is Output.JSON:
        outcome = {"accepted": answer.accepted, "message": answer.message}
        print_json({"endpoint": f"{namespace}/{name}", **as_json(request), **outcome})
        if not answer.accepted:
            raise typer.Exit(Refused.exit_code)
        return
    if not answer.accepted:
        raise Refused(
            f"{namespace}/{name}: the operator refuses to {action} {request.revision}: {answer.message}{request.left}"
        )
    print(f"{namespace}/{name}: {action} {request.revision}: {answer.message or 'accepted'}")
    print(f"follow it with: kubectl llm rollout status {name} -n {namespace}")
