"""Why a request gets no replica: the gateway's own answers to that, and when to try again."""

from dataclasses import dataclass
from math import ceil

NO_REPLICA_RETRY_AFTER = (
    5  # seconds: about the time from Ready to a replica's first request; long enough against a stampede
)

# After a wait without success the request has lost its place in the queue, and should get another soon.
EXPIRED_RETRY_AFTER = 1
# For a full queue whose waiting time is unknown.
FULL_RETRY_AFTER, LONGEST_RETRY_AFTER = 5, 30

# A picker is back in 1 to 2 s, and SDKs try twice more by default: their three attempts must span that time.
RESTART_RETRY_AFTER = 2


@dataclass(frozen=True, slots=True)
class Rejected:
    """The gateway's own answer. `retry_after`: seconds. `param`: the field at fault. `awaited`: the endpoint whose next
    replica can still answer the request. `final`: trying again is of no use. `allow`: the methods that the path takes.
    `adapter`: the LoRA adapter that the request is for. `endpoint`: the endpoint that it is for, if that is known."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None
    awaited: str | None = None
    final: bool = False
    allow: str | None = None
    adapter: str = ""
    endpoint: str = ""


def unknown_model(name: str) -> Rejected:
    return Rejected(
        404,
        "model_not_found",
        f"The model `{name[:200]}` does not exist. GET /v1/models lists what does.",
        "model",
    )


def no_valid_key() -> Rejected:
    """Which of the reasons it is, only the log of the gateway says."""
    return Rejected(
        401,
        "invalid_api_key",
        "You must send a valid API key, as `Authorization: Bearer llm_...` or `x-api-key: llm_...`.",
    )


def keys_unread() -> Rejected:
    """Without having read the keys once, the gateway cannot tell a valid one."""
    return Rejected(
        503,
        "keys_unread",
        "The gateway has not read the API keys yet. Try again.",
        retry_after=RESTART_RETRY_AFTER,
    )


def not_permitted(with_key: bool) -> Rejected:
    """The same for a model that does not exist, so that nobody learns which ones do."""
    if with_key:
        text = "This key may not use the model that the request names."
    else:
        text = "Without an API key the model that the request names may not be used."
    return Rejected(403, "permission_denied", f"{text} GET /v1/models lists what there is.", "model")


def starting() -> Rejected:
    """Before Envoy accepted a first snapshot, the gateway does not know which endpoints exist."""
    return Rejected(
        503, "gateway_starting", "The gateway has just started. Try again.", retry_after=RESTART_RETRY_AFTER
    )


def no_replica(key: str, *, awaited: bool = False) -> Rejected:
    return Rejected(
        503,
        "no_ready_replica",
        f"The endpoint {key} has no ready replica now. Try again, or see `kubectl describe llmendpoint {key.split('/')[1]} -n {key.split('/')[0]}`.",
        retry_after=NO_REPLICA_RETRY_AFTER,
        awaited=key if awaited else None,
        endpoint=key,
    )


def adapter_not_loaded(key: str, adapter: str, *, awaited: bool) -> Rejected:
    """Replicas are ready, and none of them has the adapter. `awaited`: one is expected to have it soon."""
    namespace, name = key.split("/")
    return Rejected(
        503,
        "adapter_not_loaded",
        f"No replica of the endpoint {key} has the adapter `{adapter}` now. Try again, or see "
        f"`kubectl describe llmendpoint {name} -n {namespace}`, condition AdaptersReady.",
        retry_after=NO_REPLICA_RETRY_AFTER,
        awaited=key if awaited else None,
        adapter=adapter,
        endpoint=key,
    )


def saturated(key: str) -> Rejected:
    """Every replica is full. A request gets this answer if its wait ends without a place."""
    return Rejected(
        503,
        "queue_timeout",
        f"Every replica of the endpoint {key} is busy, and the request has waited as long as it may. Try again.",
        retry_after=EXPIRED_RETRY_AFTER,
        awaited=key,
        endpoint=key,
    )


def queue_full(key: str, waiting: int, seconds: float | None) -> Rejected:
    """`seconds`: how long the last served request had waited. After that time there is probably room."""
    after = FULL_RETRY_AFTER if seconds is None else min(max(ceil(seconds), 1), LONGEST_RETRY_AFTER)
    return Rejected(
        429,
        "queue_full",
        f"{waiting} requests wait for the endpoint {key}, and there is no room for more. Try again later.",
        retry_after=after,
        endpoint=key,
    )


def circuit_open(key: str, seconds: float) -> Rejected:
    return Rejected(
        503,
        "circuit_open",
        f"Requests for the endpoint {key} fail, so that none is let through at the moment. Try again later.",
        retry_after=ceil(seconds),
        endpoint=key,
    )


def poisoned(key: str) -> Rejected:
    """Two replicas crashed with this request, so it gets no third one."""
    return Rejected(
        503,
        "request_refused",
        "Two replicas crashed while they answered this very request, so it is not tried again for five minutes.",
        final=True,
        endpoint=key,
    )
