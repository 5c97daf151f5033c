"""The program: commands, and errors as one line and an exit code."""

from __future__ import annotations

import sys

import typer

from . import batch, keys, plan, rollout
from .errors import CliError
from .scale import EXAMPLES as SCALE_EXAMPLES
from .scale import scale
from .status import EXAMPLES, status
from .top import EXAMPLES as TOP_EXAMPLES
from .top import top

EXIT_CODES = """Exit codes:

\b
  0    done
  1    the rollout failed, the model does not fit, a limit cannot be decided, or another error
  2    bad usage
  3    not found
  4    refused by this program or by the operator
  5    timed out
  6    no access to the cluster or to the hub
  130  stopped with Ctrl-C

Examples:

\b
  kubectl llm status -w
  kubectl llm rollout status chat
  kubectl llm rollout promote chat
  kubectl llm plan Qwen/Qwen3-8B --accelerator l4
  kubectl llm batch submit requests.jsonl
  kubectl llm keys create ci --grant chat
"""

app = typer.Typer(
    name="kubectl llm",
    help="Show LLM endpoints, control their rollouts, make keys for callers, and check what a model needs.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("status", epilog=EXAMPLES)(status)
app.command("top", epilog=TOP_EXAMPLES)(top)
app.command("scale", epilog=SCALE_EXAMPLES)(scale)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.add_typer(rollout.app, name="rollout")
app.add_typer(batch.app, name="batch")
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Entry point of `kubectl-llm`."""
    try:
        app(prog_name="kubectl llm")
    except CliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)


if __name__ == "__main__":
    main()
