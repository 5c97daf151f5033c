"""The command `llmendpoint-model`. Flags: docs/contribute/contracts.md. Exit codes: docs/reference/exit-codes.md."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from pathlib import Path

from llmendpoint_server.exits import exit_code_of
from llmendpoint_server.logs import TERMINATION_LOG
from llmendpoint_server.weights.download import fetch
from llmendpoint_server.weights.folders import Place
from llmendpoint_server.weights.progress import Progress, told
from llmendpoint_server.weights.sources import open_source

EXAMPLES = """\
examples:
  llmendpoint-model resolve --source hf://Qwen/Qwen3-8B@main
  llmendpoint-model fetch --source s3://models/qwen3-8b --revision HASH --root /models/cache --name qwen3-8b
  llmendpoint-model remove --root /models/cache --name qwen3-8b

environment: HF_ENDPOINT, HF_TOKEN; AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN; HTTPS_PROXY and its like.

exit codes: 0 done, 1 the source does not answer (a later try may succeed), 2 a bad flag or a volume that cannot be
written, 3 the model is not there, 5 its weights are pickles, 6 no space, 7 access denied, 8 the files that arrive are not
those of the source, 9 the source has changed since the revision was made. The last line on standard error names the cause.
"""


def name(text: str) -> str:
    """The name of a model's folder, which cannot lead elsewhere."""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be letters, digits, '.', '_' and '-'")
    return text


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmendpoint-model", description="Bring a model's files to a volume.", epilog=EXAMPLES,
        allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    resolve = commands.add_parser(
        "resolve", help="print what names the source's present content", allow_abbrev=False
    )
    fetching = commands.add_parser("fetch", help="download, or go on with it", allow_abbrev=False)
    removing = commands.add_parser("remove", help="delete a model and what is left of it", allow_abbrev=False)
    for command in (resolve, fetching):
        command.add_argument("--source", required=True, help="hf://org/name[@branch] or s3://bucket/prefix")
        command.add_argument("--allow-pickle", action="store_true", help="take weights that are pickles, too")
    for command in (fetching, removing):
        command.add_argument("--root", required=True, type=Path, help="the volume's folder for models")
        command.add_argument("--name", required=True, type=name, help="the model's folder in it")
    fetching.add_argument("--revision", required=True, help="what `resolve` printed")
    fetching.add_argument(
        "--progress-port", type=int, metavar="PORT", help="serve GET /progress (default: not)"
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises a LoadError."""
    os.umask(0o022)
    if options.command == "resolve":
        revision = open_source(options.source).resolve(options.allow_pickle)
        answer(json.dumps({"revision": revision}))
        return
    place = Place(options.root, options.name)
    try:
        if options.command == "remove":
            place.remove()
            return
        progress = Progress()
        with told(progress, options.progress_port):
            fetch(open_source(options.source), options.revision, place, options.allow_pickle, progress)
    except OSError as error:
        raise place.failed(error, 0) from error


def answer(text: str, termination_log: str = TERMINATION_LOG) -> None:
    """Print the answer for people, and write the container's termination message for the operator."""
    print(text)
    try:
        with open(termination_log, "r+", encoding="utf-8") as file:
            file.truncate()
            file.write(text)
    except OSError:
        pass  # outside a container there is no such file


def _leave(number: int, _: object) -> None:
    """Exit at once: a normal exit would wait for the threads of a download, whose bytes are kept anyway. Not with 0,
    which would complete the Job."""
    os._exit(128 + number)


def main() -> None:
    options = make_parser().parse_args(sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGINT):  # a container's first process ignores them by default
        signal.signal(number, _leave)
    sys.exit(exit_code_of(lambda: run(options)))


if __name__ == "__main__":
    main()
