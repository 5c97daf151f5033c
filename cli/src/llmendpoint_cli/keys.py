"""`kubectl llm keys`: makes keys for callers of the gateway. A key's text is printed once, and neither logged nor sent."""

from __future__ import annotations

import secrets
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from .core.keys import (
    ALPHABET,
    ID_LENGTH,
    SECRET_BYTES,
    grant_texts,
    key_text,
    make_grants,
    make_key,
    parse_duration,
    rotated,
    time_text,
    view_of,
    with_hashes,
)
from .core.tree import as_json
from .errors import BadUsage
from .key_output import print_key, print_manifest, warn_of_appliers, warn_of_grants
from .key_store import KeyStore
from .options import (
    Context,
    Format,
    Kubeconfig,
    Output,
    Session,
    print_json,
    print_warning,
)

CREATE = """Exit codes: 0 made; 2 bad usage; 4 refused, for example because the name is taken; 6 no access.

Examples:

\b
  KEY=$(kubectl llm keys create ci --grant chat)          only the key is printed on standard output
  kubectl llm keys create app -n team-a --grant chat --grant team-b/embed --expires 90d
  kubectl llm keys create gold --grant-label tier=gold --priority high
  kubectl llm keys create ci --grant chat --dry-run >ci.yaml 2>ci.key      the manifest for Git, and the key
"""
LIST = """Examples:

\b
  kubectl llm keys list
  kubectl llm keys list -A -o json | jq '.[] | select(.state == "Expired")'
"""
ROTATE = """Exit codes: 0 made; 3 no such key; 4 refused, for example because four keys of it would be accepted; 6 no access.

Examples:

\b
  KEY=$(kubectl llm keys rotate ci)                  the old key is accepted for 24 hours more
  kubectl llm keys rotate ci --keep 0                the old key is refused at once
  kubectl llm keys rotate ci --dry-run >ci.yaml      for Git; the key is printed on standard error
"""
REVOKE = """Exit codes: 0 done; 3 no such key; 6 no access.

Examples:

\b
  kubectl llm keys revoke ci              refused within two seconds; spec.disabled: false brings it back
  kubectl llm keys revoke ci --delete
"""


class Priority(StrEnum):
    """The highest priority of a key's requests."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the LLMKey.", show_default=False)]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Namespace of the LLMKey.  [default: the context's]",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Write nothing. Print the manifest, for Git, on standard output, and the key on standard error.",
    ),
]
Grants = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ENDPOINT",
        help="What the key may use: NAME, NAMESPACE/NAME, or 'NAMESPACE/*'. May be repeated.",
        show_default=False,
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="It may use endpoints of its namespace with this label. If repeated, with all of them.",
        show_default=False,
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="It may use all endpoints of its namespace.")]
Lasting = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="The key is refused after this time: 30d, 12h.  [default: never]",
        show_default=False,
    ),
]
app = typer.Typer(
    no_args_is_help=True,
    help="Make, list, rotate and revoke the keys of callers (LLMKey). The cluster keeps hashes: a key is shown once.",
)


@app.command("create", epilog=CREATE)
def create(
    name: Name,
    grant: Grants = None,
    grant_label: Labels = None,
    everything: Everything = False,
    expires: Lasting = None,
    priority: Annotated[
        Priority, typer.Option(help="Highest priority that its requests may ask for.")
    ] = Priority.NORMAL,
    dry_run: DryRun = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Make a key, and print it. It is shown only now."""
    grants = make_grants(grant or (), grant_label or (), everything)
    lasting = parse_duration(expires, "--expires") if expires else None
    if lasting is not None and not lasting:
        raise BadUsage("--expires must be more than 0; leave it out for a key that does not expire")
    end = time_text(datetime.now(UTC) + lasting) if lasting else None
    session = None if dry_run and namespace else Session(namespace, context, kubeconfig)
    key_id = "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))
    text = key_text(key_id, secrets.token_urlsafe(SECRET_BYTES))
    where = session.namespace if session else str(namespace)
    key = make_key(
        where, name, key_id, text, expires=end, grants=grants,
        priority=priority.capitalize() if priority is not Priority.NORMAL else None,
    )  # fmt: skip
    if dry_run or session is None:
        print_manifest(key, text, output)
        return
    made = KeyStore(session.client).create(key)
    print_key(made, text, output, f"made, for {', '.join(grant_texts(grants))}")
    warn_of_grants(session, made)


@app.command("list", epilog=LIST)
def list_keys(
    namespace: Namespace = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the keys of all namespaces.")
    ] = False,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List keys. What each may use, and whether it is accepted."""
    if all_namespaces and namespace:
        raise BadUsage("--all-namespaces lists all keys: leave out --namespace")
    session = Session(namespace, context, kubeconfig)
    where = None if all_namespaces else session.namespace
    views = [view_of(key, datetime.now(UTC)) for key in KeyStore(session.client).all(where)]
    if output is Output.JSON:
        print_json(as_json(views))
    elif views:
        from .render import make_console  # rich: not needed for JSON
        from .render_keys import keys_table

        make_console().print(keys_table(views))
    else:
        print(f"no LLMKey in {f'namespace {where}' if where else 'any namespace'}", file=sys.stderr)


@app.command("rotate", epilog=ROTATE)
def rotate(
    name: Name,
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="The old key is accepted for this time: 24h, 7d, or 0.")
    ] = "24h",
    dry_run: DryRun = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Make a new key for an LLMKey, and print it. Grants stay, and the old key is accepted for a while."""
    kept = parse_duration(keep, "--keep")
    session = Session(namespace, context, kubeconfig)
    store, secret = KeyStore(session.client), secrets.token_urlsafe(SECRET_BYTES)

    def hashes(key: dict[str, Any]) -> list[dict[str, Any]]:
        return rotated(key, key_text(key["spec"]["id"], secret), datetime.now(UTC), kept)

    if dry_run:
        key = store.get(session.namespace, name)
        print_manifest(with_hashes(key, hashes(key)), key_text(key["spec"]["id"], secret), output)
        return
    key = store.change(session.namespace, name, lambda key: {"hashes": hashes(key)})
    last = view_of(key, datetime.now(UTC)).old_until
    said = f"the old key is accepted until {last}" if last else "no older key is accepted"
    print_key(key, key_text(key["spec"]["id"], secret), output, f"rotated, {said}")
    warn_of_appliers(key)
    if key["spec"].get("disabled"):
        print_warning(f"{session.namespace}/{name} is disabled: no key of it is accepted")


@app.command("revoke", epilog=REVOKE)
def revoke(
    name: Name,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the LLMKey. Otherwise it is disabled, and stays.")
    ] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Have gateways refuse a key. It sets spec.disabled, or deletes the LLMKey."""
    session = Session(namespace, context, kubeconfig)
    store, where = KeyStore(session.client), f"{session.namespace}/{name}"
    if delete:
        store.delete(session.namespace, name)
    else:
        key = store.change(session.namespace, name, lambda _: {"disabled": True})
        warn_of_appliers(key)
    if output is Output.JSON:
        print_json(
            {"namespace": session.namespace, "name": name, "state": "Deleted" if delete else "Disabled"}
        )
    else:
        print(f"{where}: {'deleted' if delete else 'disabled'}; gateways refuse it within two seconds")
