"""Write crds/*.yaml (and the chart's copy of them) and docs/reference/<kind>.md from the models.

python -m llmendpoint_operator.api.generate            write what differs
python -m llmendpoint_operator.api.generate --check    exit 1 when something would be written
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from ..errors import SchemaError
from .crds import all_crds
from .examples import EXAMPLES
from .reference import reference_page
from .schema import lint

SIZE_LIMIT = 262_144
"""Bytes of an annotation: a larger definition cannot be applied by `kubectl apply` from the client's side."""


class _Dumper(yaml.SafeDumper):
    """No anchors: not every reader of a manifest knows them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> dict[str, str]:
    """Path from the repository's root to content."""
    files: dict[str, str] = {}
    crds = all_crds()
    for name, crd in crds.items():
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        problems = [
            p
            for part in ("spec", "status")
            for p in lint(schema["properties"].get(part, {"type": "object"}), part)
        ]
        if problems:
            raise SchemaError("\n".join(problems))
        text = "# Written by `make crds`; edit operator/src/llmendpoint_operator/api instead.\n"
        text += yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)
        if len(text.encode()) >= SIZE_LIMIT:
            raise SchemaError(f"{name} has {len(text.encode())} bytes, of {SIZE_LIMIT} allowed")
        files[f"crds/{name}"] = files[f"charts/llmendpoint/crds/{name}"] = text
        kind = crd["spec"]["names"]["kind"]
        files[f"docs/reference/{kind.lower()}.md"] = reference_page(crd, EXAMPLES[kind])
    return files


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file differs")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository's root (default: here)")
    args = parser.parse_args(argv)
    stale = []
    for name, text in render().items():
        path = args.root / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    if args.check and stale:
        print(f"differs from the models, run `make crds`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
