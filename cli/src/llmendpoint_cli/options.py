"""Options and arguments that several commands share, and what they stand for."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from . import kubeconfig
from .client import Client

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the LLMEndpoint.", show_default=False)]
NamesOrAll = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Name of one LLMEndpoint.  [default: all]", show_default=False),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Namespace of the LLMEndpoint.  [default: the context's]",
        show_default=False,
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Show the endpoints of all namespaces.")
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep running, and show every change.")]
Patience = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=1,
        help="Stop waiting after this time, with exit code 5.  [default: no limit]",
        show_default=False,
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Context of the kubeconfig.  [default: the current context]", show_default=False
    ),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Path of the kubeconfig.  [default: $KUBECONFIG, else ~/.kube/config]",
        show_default=False,
    ),
]
Answering = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=1,
        help="How long to wait for the operator's answer. After that the exit code is 5.",
    ),
]


class Output(StrEnum):
    """The output formats."""

    TEXT = "text"
    JSON = "json"


Format = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


class Session:
    """A connection to the cluster, and the chosen namespace."""

    def __init__(self, namespace: str | None, context: str | None, path: str | None) -> None:
        self.client = Client(lambda: kubeconfig.load(path, context), print_warning)
        self.namespace = namespace or self.client.access.namespace


def print_warning(text: str) -> None:
    """Print to standard error, as kubectl does: a program may read standard output."""
    print(f"Warning: {text}", file=sys.stderr, flush=True)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print to standard output, and at once: the reader may read line by line."""
    print(json.dumps(value, indent=indent, ensure_ascii=False), flush=True)
