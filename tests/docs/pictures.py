"""Terminals in README and docs/index.md, as SVG: `make pictures` writes them into docs/pictures/.

The commands' own code prints the lines, from sample objects like those of its tests; the verdict is the operator's own
sentence. So a picture shows what the commands print today, and a test compares. The objects are invented. The third
picture, architecture.svg, is drawn by hand.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from cli.tests.cli_unit import samples
from cli.tests.cli_unit.samples import BLUE, GREEN, NOW, READY, condition, endpoint, ready_pod
from llmendpoint_cli.core.progress import progress_of, said
from llmendpoint_cli.core.tree import view_endpoint
from llmendpoint_cli.render import status_trees
from llmendpoint_operator.core.rollout.analysis import Verdict, judge
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import Limits

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH = 96
Json = dict[str, Any]

THEME = TerminalTheme(
    (22, 27, 34), (225, 230, 238),
    [(72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65), (121, 166, 255), (210, 168, 255), (86, 212, 221), (177, 186, 196)],
)  # fmt: skip
"""Light on dark, on a ground of its own: it reads on a white page and on a black one."""

FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; line-height: {line_height}px; font-variant-east-asian: full-width }}
.{unique_id}-title {{ font: 600 17px system-ui, sans-serif }}
{styles}
</style>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich's own, without the font that it loads from another machine, and without clipping, which cuts other fonts."""


def picture(name: str, title: str, show: Callable[[Console], None]) -> str:
    """What `show` prints, in the frame of a terminal."""
    console = Console(
        record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="standard",
        highlight=False, legacy_windows=False,
    )  # fmt: skip
    show(console)
    drawn = console.export_svg(title=title, theme=THEME, code_format=FORMAT, unique_id=name)
    drawn = re.sub(r' clip-path="[^"]*"', "", drawn)
    return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines())


def typed(console: Console, command: str) -> None:
    """A line that somebody types."""
    console.print(Text.assemble(("$ ", "cyan"), (command, "bold")))


def show_trees(console: Console, shown: Iterable[tuple[Json, list[Json]]]) -> None:
    """What `kubectl llm status` prints of these endpoints with their pods."""
    console.print(status_trees([view_endpoint(*each) for each in shown], NOW))


def show_status(console: Console) -> None:
    """A rollout by shares that goes well, and an endpoint that waits for an accelerator."""
    canary = samples.rolling("Observing", weights=(75, 25))
    pods = [ready_pod(f"chat-{revision}-{letter}", revision) for revision in (BLUE, GREEN) for letter in "ab"]
    missing = "no node has 1 free nvidia.com/gpu; add nodes with it"
    starting = endpoint(
        condition("Ready", False, "NoAcceleratorAvailable", missing),
        name="code", replicas=1, targetRevision="5e1f0a9b27",
        rollout={"state": "Provisioning", "green": "5e1f0a9b27", "mode": "Surge", "stateSince": "2026-11-21T11:58:00Z"},
    )  # fmt: skip
    waiting = samples.unschedulable_pod(
        "code-5e1f0a9b27-a", "5e1f0a9b27", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )
    waiting["metadata"]["labels"]["llmendpoint.io/endpoint"] = "code"
    typed(console, "kubectl llm status -n team-a")
    show_trees(console, [(canary, pods), (starting, [waiting])])


def verdict() -> Verdict:
    """The operator's, on a revision of which 9 in 81 requests failed."""
    return judge(Limits(duration=60, error_rate=0.02), Figures(requests=81, errors=9), None, 7.0)


def show_rollback(console: Console) -> None:
    """A revision that fails one request in nine gets a few requests, then the old one has them all again."""
    found = verdict()
    green_pods: Json = {"revisions": [{"name": GREEN, "replicas": 2, "readyReplicas": 2}]}
    rolled_back = endpoint(
        READY,
        condition("Stalled", True, "RevisionRejected", f"revision {GREEN}: {found.message}"),
        activeRevision=BLUE, targetRevision=GREEN, readyReplicas=2, url="http://gateway.llm.svc/v1",
        rollout={"state": "RolledBack", "blue": BLUE, "green": GREEN, "stateSince": "2026-11-21T11:58:00Z"},
        rejected={"revision": GREEN, "reason": found.reason, "message": found.message},
    )  # fmt: skip
    steps = (
        (0.0, samples.rolling("Warming", revisions=[{"name": GREEN, "replicas": 2, "readyReplicas": 0}])),
        (38.2, samples.rolling("Verifying", **green_pods)),
        (39.3, samples.rolling("Observing", weights=(0, 100), **green_pods)),
        (46.4, rolled_back),
    )
    typed(console, "kubectl apply -f chat.yaml && kubectl llm rollout status chat")
    for seconds, seen in steps:
        console.print(said(progress_of(seen), seconds), markup=False)
    typed(console, "kubectl llm status chat")
    show_trees(console, [(rolled_back, [ready_pod(f"chat-{BLUE}-{letter}", BLUE) for letter in "ab"])])


PICTURES: dict[str, tuple[str, Callable[[Console], None]]] = {
    "status": ("What runs, and why something does not", show_status),
    "rollback": ("A bad revision is rolled back automatically", show_rollback),
}


def drawn(name: str) -> str:
    """The picture of that name, as SVG."""
    return picture(name, *PICTURES[name])


if __name__ == "__main__":
    for each in PICTURES:
        (FOLDER / f"{each}.svg").write_text(drawn(each))
        print(f"docs/pictures/{each}.svg")
