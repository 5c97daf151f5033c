"""Writes a request and waits for its answer."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from .client import Client, Json
from .core.names import REVISION_LABEL
from .core.objects import full_name, label_of
from .core.requests import Action, Answer, Request, answer_to, patch_for
from .core.respec import spec_patch
from .errors import Conflict, NotFound, TimedOut
from .follow import readings

ATTEMPTS = 10
"""Attempts to write. During a rollout the operator also writes the endpoint's status now and then."""


def ask(client: Client, namespace: str, name: str, action: Action, about: Callable[[Json], str]) -> Request:
    """Write the request; `about` finds its revision. An undo also writes the spec of that revision. If the endpoint
    changes between the read and the write, begin again. Raises what `about` raises, Refused, Conflict."""
    for _ in range(ATTEMPTS):
        endpoint = client.endpoint(namespace, name)
        request = Request(uuid.uuid4().hex, action, about(endpoint))
        spec = _spec_of(client, endpoint, request) if action is Action.UNDO else None
        try:
            client.patch_endpoint(namespace, name, patch_for(endpoint, request, spec))
        except Conflict:
            continue
        return request
    raise Conflict(
        f"{namespace}/{name} changed {ATTEMPTS} times while this command tried to write the request; try again"
    )


def _spec_of(client: Client, endpoint: Json, request: Request) -> Json:
    """The change that turns the spec into that of the request's revision."""
    metadata = endpoint["metadata"]
    records = client.records(metadata["namespace"], metadata["name"])
    record = next((r for r in records if label_of(r, REVISION_LABEL) == request.revision), None)
    inputs = ((record or {}).get("data") or {}).get("inputs")
    if not inputs:
        raise NotFound(
            f"{full_name(endpoint)}: revision {request.revision} has no record of the spec that it was made from"
        )
    return spec_patch(endpoint["spec"], inputs)


def await_answer(client: Client, namespace: str, name: str, request: Request, timeout_s: float) -> Answer:
    """Wait for the operator's answer. Raises TimedOut; the request then stays on the endpoint."""
    waited_for = f"the operator's answer to the request to {request.action} {request.revision}"
    try:
        for endpoint in readings(lambda: client.endpoint(namespace, name), timeout_s, waited_for):
            answer = answer_to(endpoint, request)
            if answer is not None:
                return answer
    except TimedOut as error:
        raise TimedOut(
            f"{error}; the request stays on {namespace}/{name}, and the operator answers it when it runs again; to "
            f"withdraw it: kubectl annotate llm {name} -n {namespace} llmendpoint.io/request-{request.left}"
        ) from None
    raise AssertionError("readings never end by themselves")
