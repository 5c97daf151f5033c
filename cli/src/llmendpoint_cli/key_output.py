"""What `kubectl llm keys` prints: a key once, and alone, so that a script can take it; everything else on standard error."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import yaml

from .core.keys import appliers, unusable, view_of
from .core.tree import as_json
from .errors import CliError, NotFound
from .options import Output, Session, print_json, print_warning


def print_key(key: dict[str, Any], text: str, output: Output, done: str) -> None:
    """After it was made. `done`: what was done."""
    view = view_of(key, datetime.now(UTC))
    if output is Output.JSON:
        print_json({**as_json(view), "key": text})
        return
    print(text, flush=True)
    end = f"; it expires {view.expires}" if view.expires else ""
    print(f"{view.namespace}/{view.name}: {done}{end}. The key is shown only now.", file=sys.stderr)


def print_manifest(key: dict[str, Any], text: str, output: Output) -> None:
    """For Git, on standard output; then standard error has the key alone."""
    if output is Output.JSON:
        print_json(key)
    else:
        print(yaml.safe_dump(key, sort_keys=False), end="", flush=True)
    print(text, file=sys.stderr)


def warn_of_grants(session: Session, key: dict[str, Any]) -> None:
    """Of those for one endpoint. What this user may not see is not said."""
    for grant in key["spec"].get("grants") or ():
        if "name" not in grant:
            continue
        where = grant.get("namespace", session.namespace)
        try:
            endpoint = session.client.endpoint(where, grant["name"])
        except NotFound:
            endpoint = None
        except CliError:
            continue
        why = unusable(key, grant, endpoint)
        if why is not None:
            print_warning(why)


def warn_of_appliers(key: dict[str, Any]) -> None:
    """Their manifest differs from what this program has written."""
    for applier in appliers(key):
        print_warning(
            f"{applier} applies a manifest of this LLMKey: change the manifest, too, or its next apply may bring back what "
            "this command has changed"
        )
