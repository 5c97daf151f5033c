"""Write docs/benchmarks.md from build/bench/*.json: each table with its command, its machine and the day.

A table whose command did not run here stays as it is on the page.

make bench-cluster bench-gateway bench-engine bench-docs
"""

from __future__ import annotations

import argparse
import os
import platform
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tests.bench.results import RESULTS, read, table

PAGE = Path(__file__).parent.parent.parent / "docs" / "benchmarks.md"
NOTES = Path(__file__).parent / "notes.md"


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    command: str


SECTIONS = (
    Section("engine", "Engine", "make bench-engine"),
    Section("engine-qwen3", "Engine: 152k tokens to draw from", "make bench-engine"),
    Section("speculation", "Engine: speculation", "make bench-speculation"),
    Section("structured", "Engine: structured output", "make bench-structured"),
    Section("weights", "Engine: weights and KV cache in fewer bits", "make bench-weights"),
    Section("serving", "Serving", "make bench-serving"),
    Section("sampler", "Sampler", "make bench-sampler"),
    Section("step", "Engine: what Python does for a step", "make bench-step"),
    Section("api", "API process of the engine", "make bench-api"),
    Section("gateway", "Gateway", "make bench-gateway"),
    Section("prefixes", "Gateway: prompts that begin alike", "make bench-prefixes"),
    Section("tables", "Gateway: one change of many endpoints", "make bench-tables"),
    Section("rollout", "Rollback under 50 requests a second", "make bench-rollout"),
    Section("verdicts", "Verdicts on simulated rollouts", "make bench-verdicts"),
    Section("operator", "Operator", "make bench-operator"),
    Section("tenants", "One tenant attacks, another asks", "pytest -s -m extended tests/e2e/test_tenants.py"),
    Section("day", "Autoscaling: three bursty days in virtual time", "make bench-day"),
    Section("wake", "From zero: the pod", "make bench-wake"),
    Section("first-token", "From zero: the first token", "make bench-wake"),
    Section("cluster", "Embedded Kubernetes", "make bench-cluster"),
    Section("demo", "The demo", "make demo"),
)


def machine() -> str:
    """One line: cores, processor, memory, system."""
    cpu = Path("/proc/cpuinfo").read_text()
    lines = (line.split(":", 1) for line in cpu.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines}
    model = fields.get("model name", "an unknown processor")
    family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    flags = sorted({f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {f} " in cpu})
    memory = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    gib = int(memory.split()[1]) / 2**20
    return (
        f"{os.cpu_count()} cores of {model} ({family}; {', '.join(flags)}), {gib:.0f} GiB, "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )


HEAD = """# Benchmarks

Written by `make bench-docs` from what the commands below left; do not edit. Comparisons run in turn within one call, medians
of at least three, so that a noisy machine spoils both sides alike. A goal that is not met is shown as it is. Figures of two
tables can be compared only where their machines are the same."""


def sections_of(page: str) -> dict[str, str]:
    """Title -> text of each section."""
    return dict(re.findall(r"^## ([^\n]*)\n\n(.*?)\n*(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))


def measured(section: Section) -> str:
    """The text of a section whose command has just left its figures here."""
    day = date.fromtimestamp((RESULTS / f"{section.name}.json").stat().st_mtime)
    lines = (f"`{section.command}`, {day.isoformat()} on {machine()}", "", *table(read(section.name)))
    return "\n".join(lines)


def page(before: str) -> str:
    """`before`: the page as it is, for what was measured elsewhere."""
    kept, parts = sections_of(before), [HEAD]
    for section in SECTIONS:
        if (RESULTS / f"{section.name}.json").exists():
            kept[section.title] = measured(section)
        if text := kept.get(section.title):
            parts.append(f"## {section.title}\n\n{text}")
    return "\n\n".join([*parts, NOTES.read_text().rstrip()]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    PAGE.write_text(page(PAGE.read_text()))
    print(f"wrote {PAGE.relative_to(PAGE.parent.parent)}")


if __name__ == "__main__":
    main()
