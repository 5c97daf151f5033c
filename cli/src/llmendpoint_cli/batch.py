"""`kubectl llm batch`: submits files of requests, and shows what became of them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .batch_service import BatchService
from .core.batches import ENDED, describe, failure, url_of
from .errors import BadUsage, CliError, Refused
from .follow import readings
from .options import Context, Format, Kubeconfig, Output, Patience, Session, print_json

CODES = "Exit codes: 0 done; 1 the batch failed, expired or was cancelled; 3 no such batch or no batch service; 4 refused; 5 timed out; 6 no access."
SUBMIT = f"""{CODES}

Examples:

\b
  kubectl llm batch submit requests.jsonl
  kubectl llm batch submit requests.jsonl --window 6h --metadata team=search
  kubectl llm batch submit requests.jsonl -o json | jq -r .id
"""
STATUS = f"""{CODES}

Examples:

\b
  kubectl llm batch status batch_68f2a1
  kubectl llm batch status batch_68f2a1 --wait --timeout 3600
"""
RESULTS = f"""{CODES}

Examples:

\b
  kubectl llm batch results batch_68f2a1 > answers.jsonl
  kubectl llm batch results batch_68f2a1 --errors
"""
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the batch.", show_default=False)]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="NS", help="Namespace of the batch service.  [default: search all]", show_default=False
    ),
]
app = typer.Typer(
    help="Submit files of requests, which are answered when there is room.", no_args_is_help=True
)


@app.command("submit", epilog=SUBMIT)
def submit(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A JSON object with one request on each line.", show_default=False
        ),
    ],
    window: Annotated[
        str, typer.Option(metavar="TIME", help="Time in which the batch must be answered, 1m to 7d.")
    ] = "24h",
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Kept with the batch. May be repeated.", show_default=False),
    ] = None,
    batch_namespace: Where = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Upload a file of requests, and start a batch of them."""
    endpoint = _endpoint(file)
    pairs = [pair.partition("=") for pair in metadata or ()]
    if any(not mark or not key for key, mark, _ in pairs):
        raise BadUsage("--metadata takes KEY=VALUE")
    service = _service(batch_namespace, context, kubeconfig)
    uploaded = service.upload(file)
    body: dict[str, Any] = {
        "input_file_id": uploaded["id"],
        "endpoint": endpoint,
        "completion_window": window,
        "metadata": {key: value for key, _, value in pairs} or None,
    }
    _show(service.create(body), output)


@app.command("status", epilog=STATUS)
def status(
    batch_id: Id,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the batch has ended.")] = False,
    timeout: Patience = None,
    batch_namespace: Where = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show how far a batch is."""
    service = _service(batch_namespace, context, kubeconfig)
    batch = service.batch(batch_id)
    if wait:
        for batch in readings(lambda: service.batch(batch_id), timeout, f"the end of {batch_id}"):
            if batch["status"] in ENDED:
                break
    if (why := failure(batch)) is not None and output is Output.TEXT:
        raise CliError(why)
    _show(batch, output)
    if why is not None:
        raise typer.Exit(1)


@app.command("results", epilog=RESULTS)
def results(
    batch_id: Id,
    errors: Annotated[bool, typer.Option("--errors", help="Show the lines that failed instead.")] = False,
    batch_namespace: Where = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the answers, one JSON object on each line. With -o json they are one list."""
    service = _service(batch_namespace, context, kubeconfig)
    batch = service.batch(batch_id)
    if batch["status"] not in ENDED:
        raise Refused(f"{next(describe(batch))}; its results come when it has ended")
    file_id = batch.get("error_file_id" if errors else "output_file_id")
    if output is Output.JSON:
        kept = io.BytesIO()
        if file_id:
            service.copy(file_id, kept)
        print_json([json.loads(line) for line in kept.getvalue().splitlines()])
    elif file_id:
        service.copy(file_id, sys.stdout.buffer)
    else:
        kind = "failed line" if errors else "answer"
        print(f"{next(describe(batch))}: no {kind}", file=sys.stderr)


def _service(namespace: str | None, context: str | None, kubeconfig: str | None) -> BatchService:
    return BatchService(Session(None, context, kubeconfig).client, namespace)


def _endpoint(file: Path) -> str:
    try:
        with file.open("rb") as lines:
            url = url_of(lines.readline(1 << 20))
    except OSError as error:
        raise BadUsage(f"{file} cannot be read: {error.strerror or error}") from None
    if url is None:
        raise BadUsage(
            f'{file}: the first line has no url. A line is {{"custom_id": "1", "method": "POST", '
            '"url": "/v1/chat/completions", "body": {…}}'
        )
    return url


def _show(batch: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        print_json(batch)
    else:
        print("\n".join(describe(batch)))
