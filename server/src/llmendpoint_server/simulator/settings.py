"""The command line of `llmendpoint-simulator`: every flag of `llmendpoint-server`, and flags for its behaviour."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from llmendpoint_server.settings import Settings, add_server_flags, positive, seconds, settings_from, share
from llmendpoint_server.simulator.behaviour import Behaviour

DESCRIPTION = """\
An engine without a model behind the API of llmendpoint-server, to rehearse rollouts without a GPU. It echoes the last
user message. All flags of llmendpoint-server are accepted; device, dtype, memory and tokens in a step have no effect.
"""
EXAMPLES = """\
examples:
  llmendpoint-simulator --model any
  llmendpoint-simulator --model any --load-time 20 --ttft 0.3 --itl 0.02 --jitter 0.5 --seed 7
  llmendpoint-simulator --model any --error-rate 0.1                    one request in ten answers 500
  llmendpoint-simulator --model any --crash-after 50                    serves 50 requests, then ends with exit code 1
  llmendpoint-simulator --model any --answer 'capital of France=>Paris' --answer '=>I do not know.'
  llmendpoint-simulator --model any --foreign --load-time 20            /health only, though nothing is loaded yet

in an LLMEndpoint, with the LLMRuntime `simulator`:
  runtime: {name: simulator, args: ["--error-rate=0.1", "--ttft=0.3"]}
"""


def count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of requests, 0 or more")
    return int(text)


def override(text: str) -> tuple[str, str]:
    part, arrow, answer = text.partition("=>")
    if not arrow:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no '=>': write the text to look for and the answer, as in 'capital of France=>Paris'"
        )
    return part, answer


def add_behaviour_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("behaviour").add_argument
    default = Behaviour()
    add("--load-time", type=seconds, default=default.load_time, metavar="SECONDS",
        help=f"until it is ready (default: {default.load_time:g})")  # fmt: skip
    add("--never-ready", action="store_true", help="go on loading for ever")
    add("--load-error", type=int, choices=(1, 2, 3, 4), metavar="CODE",
        help="fail after the load time, with this exit code (1 to 4)")  # fmt: skip
    add("--ttft", type=seconds, default=default.ttft, metavar="SECONDS",
        help=f"time to the first token (default: {default.ttft:g})")  # fmt: skip
    add("--itl", type=seconds, default=default.itl, metavar="SECONDS",
        help=f"time between two tokens (default: {default.itl:g})")  # fmt: skip
    add("--jitter", type=share, default=0.0, metavar="SHARE",
        help="draw each of these times from 1 - SHARE to 1 + SHARE times itself (default: 0)")  # fmt: skip
    add("--error-rate", type=share, default=0.0, metavar="SHARE", help="share of requests that get a 500")
    add("--hang-rate", type=share, default=0.0, metavar="SHARE",
        help="share of requests that are never answered")  # fmt: skip
    add("--hang-after", type=count, metavar="N",
        help="from the request after the N-th on, answer nothing more; /health stays 200")  # fmt: skip
    add("--crash-after", type=count, metavar="N", help="end with exit code 1 at the request after the N-th")
    add("--freeze-after", type=count, metavar="N",
        help="from the request after the N-th on, answer nothing more; /health turns to 503")  # fmt: skip
    add("--answer", dest="answers", type=override, action="append", default=[], metavar="TEXT=>ANSWER",
        help="answer a user message that contains TEXT with ANSWER; an empty TEXT is in every message; repeat it for more, the first that fits is taken")  # fmt: skip
    add("--output-tokens", type=positive, metavar="N",
        help="repeat or cut every answer to N tokens (a token is up to four bytes)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="decides jitter, errors and hangs (default: 0)")
    add("--adapter-load-time", type=seconds, default=default.adapter_load_time, metavar="SECONDS",
        help=f"of a LoRA adapter, which has no weights here (default: {default.adapter_load_time:g})")  # fmt: skip
    add("--adapter-error", metavar="TEXT", help="refuse each LoRA adapter with TEXT in its source")
    add("--foreign", action="store_true",
        help="be an engine that knows nothing of us: no /ready and no /load, and /health is 200 from the start")  # fmt: skip


def parse(arguments: Sequence[str]) -> tuple[Settings, Behaviour]:
    """Settings from the command line; argparse prints what is wrong and raises SystemExit(2)."""
    parser = argparse.ArgumentParser(
        prog="llmendpoint-simulator", description=DESCRIPTION, epilog=EXAMPLES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_server_flags(parser)
    add_behaviour_flags(parser)
    options = vars(parser.parse_args(arguments))
    ours = {field.name: options.pop(field.name) for field in dataclasses.fields(Behaviour)}
    behaviour = Behaviour(**{**ours, "answers": tuple(ours["answers"])})
    if behaviour.error_rate + behaviour.hang_rate > 1:
        parser.error("--error-rate and --hang-rate together are above 1: lower one of them")
    return settings_from(options, parser), behaviour
