"""Views as rich shows them. Texts come from the cluster, so none of them is read as markup."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import IO

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from .core.history import Entry
from .core.objects import age_text
from .core.pods import PodView
from .core.tree import EndpointView, RevisionView, RolloutView

COLOURS = {
    "Ready": "green", "active": "green", "RollingOut": "cyan", "new": "cyan", "Degraded": "yellow",
    "Stopping": "dim", "kept": "dim", "old": "dim", "Failed": "red", "Stalled": "red", "NotReady": "red",
    "Unresponsive": "red", "NoOperator": "red", "rejected": "red",
}  # fmt: skip
"""Colours of phases, states and roles. Everything else is in progress, and yellow."""


def make_console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """A terminal gets colours and its own width; a pipe gets whole lines."""
    stream = file or sys.stdout
    if width is None and not stream.isatty():
        width = 240
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def status_trees(views: Iterable[EndpointView], now: datetime) -> Group:
    """One tree for each endpoint."""
    return Group(*(_endpoint(view, now) for view in views))


def history_table(entries: Iterable[Entry], now: datetime) -> Table:
    """One line for each revision, oldest first."""
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("NUMBER", "REVISION", "ROLE", "AGE", "MODEL"):
        table.add_column(column, no_wrap=True)
    table.add_column("CHANGED", overflow="fold")
    for number, e in enumerate(entries):
        changed = "\n".join(e.changes) or ("(no field of the spec)" if number else "(oldest kept)")
        table.add_row(
            str(e.number), e.revision, _coloured(e.role), age_text(e.created, now), Text(e.model),
            Text(changed),
        )  # fmt: skip
    return table


def _endpoint(view: EndpointView, now: datetime) -> Tree:
    head = Text.assemble(
        (f"{view.namespace}/{view.name}", "bold"),
        "  ",
        _coloured(view.phase),
        f"  {view.ready}/{view.wanted} replicas ready",
    )
    tree = Tree(head)
    for reason in view.why:
        tree.add(Text(reason, style="yellow"))
    if view.rollout is not None:
        tree.add(_rollout(view.rollout, now))
    for revision in view.revisions:
        _add_revision(tree, revision, now)
    if view.adapters:
        each = ", ".join(f"{one.name} {one.ready}/{view.ready}" for one in view.adapters)
        tree.add(Text(f"adapters {each}"))
    if view.url:
        tree.add(Text.assemble("url ", (view.url, "underline")))
    return tree


def _rollout(view: RolloutView, now: datetime) -> Text:
    age = age_text(view.since, now)
    how = f" ({view.mode})" if view.mode else ""
    line = Text.assemble("rollout ", _coloured(view.state), how, f" for {age}" if age else "")
    for said in filter(None, (view.observed, view.message)):
        line.append(f": {said}")
    return line


def _add_revision(tree: Tree, view: RevisionView, now: datetime) -> None:
    weight = f"  {view.weight} % of new requests" if view.weight else ""
    line = Text.assemble(
        "revision ",
        (view.name, "bold"),
        "  ",
        _coloured(view.role),
        f"  {view.ready}/{len(view.pods)} pods ready" if view.pods else "  no pods",
        weight,
    )
    branch = tree.add(line)
    for pod in view.pods:
        branch.add(_pod(pod, now))


def _pod(pod: PodView, now: datetime) -> Text:
    line = Text.assemble(f"pod {pod.name}  ", _coloured(pod.phase))
    facts = [age_text(pod.created, now), f"on {pod.node}" if pod.node else ""]
    facts += [
        f"{pod.restarts} restart{'s' * (pod.restarts > 1)}" if pod.restarts else "",
        "gets no new requests" if pod.draining else "",
    ]
    line.append("".join(f"  {fact}" for fact in facts if fact), style="dim")
    return line.append(f"  {pod.why}") if pod.why else line


def _coloured(word: str) -> Text:
    return Text(word, style=COLOURS.get(word, "yellow"))
