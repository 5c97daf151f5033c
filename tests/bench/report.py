"""Write docs/benchmarks.md from build/bench/*.json, with the machine and the command of each table.

make bench-cluster bench-gateway bench-engine bench-docs
"""

from __future__ import annotations

import argparse
import os
import platform
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
    Section("gateway", "Gateway", "make bench-gateway"),
    Section("rollout", "Rollback under 50 requests a second", "make bench-rollout"),
    Section("operator", "Operator", "make bench-operator"),
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


def page() -> str:
    parts = [
        "# Benchmarks",
        "",
        "Written by `make bench-docs` from what the commands below left; do not edit. Comparisons run in turn within "
        "one call, medians of at least three, so that a noisy machine spoils both sides alike. A goal that is not "
        "met is shown as it is.",
        "",
        f"Machine of the last run ({date.today().isoformat()}): {machine()}.",
    ]
    for section in SECTIONS:
        if (RESULTS / f"{section.name}.json").exists():
            parts += ["", f"## {section.title}", "", f"`{section.command}`", "", *table(read(section.name))]
    if NOTES.exists():
        parts += ["", NOTES.read_text().rstrip()]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(PAGE.parent.parent)}")


if __name__ == "__main__":
    main()
