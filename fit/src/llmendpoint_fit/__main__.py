"""`llmendpoint-inspect FOLDER`: prints what the formulas need to know of a model, as one line of JSON.

The operator runs it in a one-shot Job if a model is on a PersistentVolumeClaim, and reads the termination message.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .core.model import model_as_json
from .errors import FitError, ModelMissing
from .folder import read_folder

EXAMPLES = """examples:
  llmendpoint-inspect ./Qwen3-8B
  llmendpoint-inspect /models/chat --termination-log /dev/termination-log
"""
MISSING, UNREADABLE = 3, 1


def main(argv: list[str] | None = None) -> int:
    """Returns 0 and prints a line of JSON; 3 if there is no model, 1 if it cannot be read, each with `{"problem": …}`."""
    parser = argparse.ArgumentParser(
        prog="llmendpoint-inspect",
        description="What decides a model's memory, from its config.json and the headers of its weight files.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="as transformers writes it")
    parser.add_argument(
        "--termination-log", type=Path, metavar="PATH", help="write the same line to this file"
    )
    args = parser.parse_args(argv)
    code = 0
    try:
        said = model_as_json(read_folder(args.folder))
    except FitError as error:
        said, code = {"problem": str(error)}, MISSING if isinstance(error, ModelMissing) else UNREADABLE
    line = json.dumps(said, separators=(",", ":"))
    print(line)
    if args.termination_log is not None:
        args.termination_log.write_text(line)
    return code


if __name__ == "__main__":
    sys.exit(main())
