"""A plan as rich shows it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from llmendpoint_fit.core.text import gb

from .core.planning import CostView, Option, Report


def report_view(report: Report) -> Group:
    """The model, then its accelerator, or a table of those that would serve."""
    about = [f"{report.parameters / 1e9:,.2f} B parameters", f"weights {gb(report.weights)}"]
    about += [report.quantization] if report.quantization else []
    about += [f"{report.kv_bytes_per_token:,} bytes of keys and values a token"]
    name = f"{report.model}  " if report.model else ""
    head = Text.assemble((name, "bold"), f"{report.architecture}: {', '.join(about)}")
    parts: list[RenderableType] = [head]
    if not report.options:
        parts.append(Text(report.problem, style="red"))
    elif len(report.options) == 1:
        parts += _one(report.options[0])
    else:
        parts.append(_table(report.options))
    return Group(*parts)


def _one(option: Option) -> list[RenderableType]:
    colour = "green" if option.outcome == "Fits" else "yellow" if option.fits else "red"
    parts: list[RenderableType] = [
        Text.assemble(f"{option.count} x {option.accelerator}: ", (option.outcome, colour)),
        Text(f"  {option.message}" + (" (of each)" if option.count > 1 else "")),
    ]
    parts += [Text(f"  would fit: {change}") for change in option.would_fit]
    if option.cost is not None:
        parts += [Text(f"  {line}") for line in cost_lines(option.cost)]
    elif option.fits:
        parts.append(Text("  no price is known: give --price"))
    return parts


def cost_lines(cost: CostView) -> list[str]:
    """The price of tokens, and the throughput that makes it cheaper than an API."""
    lines = [f"${cost.hourly:,.2f} an hour"]
    if cost.per_thousand is not None and cost.tokens_per_second is not None:
        limit = f"decode's limit with {cost.sequences:,} sequences of {cost.mean_context:,} tokens; no engine reaches it"
        least, how = ("", "measured") if cost.measured else ("at least ", limit)
        lines[0] += f": {least}${cost.per_thousand:.6f} per 1K output tokens"
        lines.append(f"{cost.tokens_per_second:,.0f} tokens/s ({how})")
    if cost.breakeven is not None:
        line = f"breakeven with the API: {cost.breakeven:,.0f} tokens/s around the clock"
        if cost.tokens_per_second is not None:
            line += f", {cost.breakeven / cost.tokens_per_second:,.1f} times that"
        lines.append(line)
    return lines


def _table(options: tuple[Option, ...]) -> Table:
    """One line for each kind of accelerator, the cheapest first."""
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("ACCELERATOR", no_wrap=True)
    for column in ("COUNT", "CONTEXT", "SEQUENCES", "USD/HOUR", "TOKENS/S <", "USD/1K >"):
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column("VERDICT", no_wrap=True)
    for o in options:
        cost = o.cost
        table.add_row(
            Text(o.accelerator), str(o.count), f"{min(o.context, o.longest_context):,}", f"{max(o.sequences, 1):,}",
            f"{cost.hourly:,.2f}" if cost else "", f"{cost.tokens_per_second:,.0f}" if cost and cost.tokens_per_second else "",
            f"{cost.per_thousand:.6f}" if cost and cost.per_thousand else "", Text(o.outcome),
        )  # fmt: skip
    return table
