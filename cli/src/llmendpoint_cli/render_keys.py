"""LLMKeys as rich shows them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from .core.keys import KeyView

COLOURS = {"Active": "green", "Disabled": "dim", "Expired": "red"}


def keys_table(views: Iterable[KeyView]) -> Table:
    """A line for each key."""
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("KEY", "ID"):
        table.add_column(column, no_wrap=True)
    table.add_column("GRANTS", overflow="fold")
    for column in ("PRIORITY", "EXPIRES", "STATE"):
        table.add_column(column, no_wrap=True)
    for view in views:
        state = Text(view.state, style=COLOURS[view.state])
        if view.state == "Active" and view.old_until:
            state.append(f", old key until {view.old_until}")
        table.add_row(
            Text(f"{view.namespace}/{view.name}"), Text(view.id), Text(", ".join(view.grants) or "none"),
            Text(view.priority), Text(view.expires or "never"), state,
        )  # fmt: skip
    return table
