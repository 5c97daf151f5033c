"""The list of models in OpenAI's shape, as values that become JSON."""

from datetime import datetime
from functools import lru_cache
from typing import Any

from llmendpoint_gateway.core.endpoint.names import split_adapter
from llmendpoint_gateway.core.endpoint.objects import Endpoint
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.core.request.refusals import Rejected, unknown_model


def model_list(view: View) -> dict[str, Any]:
    """Every model name that a request may use, sorted. Adapters follow the endpoint's key and its first bare name alone:
    the list would be long otherwise, and they are served under the other names all the same."""
    models = []
    for base in sorted(view.names):
        endpoint = view.endpoints[view.names[base]]
        models.append(model_object(base, endpoint))
        if endpoint.adapters and base in (endpoint.key, *endpoint.served_names[:1]):
            models += [model_object(name, endpoint, base) for name in _with_adapters(base, view)]
    return {"object": "list", "data": models}


def _with_adapters(base: str, view: View) -> list[str]:
    """Without those that are another endpoint's own name."""
    found = (f"{base}:{adapter}" for adapter in sorted(view.endpoints[view.names[base]].adapters))
    return [name for name in found if name not in view.names]


def one_model(name: str, view: View) -> dict[str, Any] | Rejected:
    base, adapter = split_adapter(name, view.names.__contains__)
    known = name in view.names or (adapter != "" and name in _with_adapters(base, view))
    return _model(name, view) if known else unknown_model(name)


def _model(name: str, view: View) -> dict[str, Any]:
    base, adapter = split_adapter(name, view.names.__contains__)
    return model_object(name, view.endpoints[view.names[base]], base if adapter else "")


def model_object(name: str, endpoint: Endpoint, parent: str = "") -> dict[str, Any]:
    """An adapter's `parent` is the model's name, as in an engine's own list."""
    model = {"id": name, "object": "model", "created": _seconds(endpoint.created), "owned_by": endpoint.key}
    return {**model, "parent": parent} if parent else model


@lru_cache(maxsize=4096)
def _seconds(created: str) -> int:
    return int(datetime.fromisoformat(created).timestamp())
