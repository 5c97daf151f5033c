"""A rollout's plan as rich shows it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .core.rollout_plan import NO_REQUESTS, Plan, Row

NOTHING_OBSERVED = "rollout.observe.duration is 0: this rollout is not observed"
NO_TRAFFIC = f"{NO_REQUESTS}; measure for longer with --measure, or give --requests-per-second"


def plan_view(plan: Plan) -> Group:
    """The traffic, then a line for each limit at each step, then what stands in the way."""
    traffic = f"{plan.requests_per_second:.3g} requests/s, of which {plan.error_rate:.2%} fail"
    parts: list[RenderableType] = [Text.assemble((plan.endpoint, "bold"), f"  {traffic}")]
    if not plan.rows:
        return Group(*parts, Text(NOTHING_OBSERVED, style="yellow"))
    if plan.requests_per_second <= 0:
        return Group(*parts, Text(NO_TRAFFIC, style="red"))
    parts.append(_table(plan))
    parts += [Text(f"{_where(plan, row)}{row.why}", style="red") for row in plan.rows if row.why]
    return Group(*parts)


def _table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    shared = _shared(plan)
    for column in (
        "LIMIT",
        *(("SHARE",) if shared else ()),
        "KNOWN TO BE KEPT",
        "SMALLEST CHANGE THAT IS SEEN",
    ):
        table.add_column(column, overflow="fold")
    for row in plan.rows:
        share = (f"{row.weight} %",) if shared else ()
        table.add_row(Text(row.limit), *share, _kept(row), _smallest(row))
    return table


def _kept(row: Row) -> Text:
    if not row.decidable or row.requests is None or row.seconds is None:
        return Text("not decidable", style="red")
    known = f"after about {row.requests:,} requests, {max(1, round(row.seconds)):,} s"
    if row.near:
        return Text(f"{known}; near the limit, so watched for up to {row.within:g} s", style="yellow")
    return Text(known, style="green")


def _smallest(row: Row) -> str:
    if row.smallest_seen is None:
        return f"none within {row.within:g} s"
    return f"{row.smallest_seen:.1%} {row.seen}, within {row.within:g} s"


def _shared(plan: Plan) -> bool:
    """Whether the old revision keeps requests at some step."""
    return any(row.weight < 100 for row in plan.rows)


def _where(plan: Plan, row: Row) -> str:
    return f"{row.field}{f' at {row.weight} %' if _shared(plan) else ''}: "
