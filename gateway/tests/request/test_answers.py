"""docs/contribute/contracts.md: how a client names a model, and what the real gateway answers, in OpenAI's error shape."""

import uuid
from typing import Any

import httpx
import openai
import pytest

from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway

CHAT = "/v1/chat/completions"


def post(gateway: Gateway, path: str, body: object = None, **more: object) -> httpx.Response:
    if body is not None:
        more["json"] = body
    return httpx.post(gateway.url + path, timeout=30, **more)  # type: ignore[arg-type]


def error_of(response: httpx.Response) -> dict[str, object]:
    """The error, after checking that its shape is OpenAI's."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, object] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    return error


def test_a_model_is_found_by_bare_name_by_namespaced_name_and_by_path(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"), names=("gpt-x",))
    for model in ("gpt-x", f"team/{name}"):
        assert post(gateway, CHAT, {"model": model}).headers["x-engine"] == "a"
    response = post(gateway, f"/team/{name}{CHAT}?x=1", {"model": "whatever"})
    assert response.headers["x-engine"] == "a"
    seen = httpx.get(f"http://{gateway.backends[-1].address}/stub/seen").json()
    assert [s["path"] for s in seen] == [CHAT, CHAT, f"{CHAT}?x=1"]
    assert post(gateway, CHAT, {"model": name}).status_code == 404


def test_an_unknown_model_is_404_in_openais_shape_and_the_sdk_says_not_found(gateway: Gateway) -> None:
    response = post(gateway, CHAT, {"model": "nobody"})
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["type"]) == ("model_not_found", "invalid_request_error")
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none")
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hi"}])
    assert post(gateway, f"/team/nobody{CHAT}", {"model": "x"}).status_code == 404


def test_no_ready_replica_is_503_with_retry_after(gateway: Gateway) -> None:
    backend = gateway.backend("cold")
    name = gateway.endpoint(name="cold")
    gateway.replica(name, "r1", backend, ready=False)
    gateway.settled()
    for path in (CHAT, f"/team/{name}{CHAT}"):
        response = post(gateway, path, {"model": name})
        assert response.status_code == 503
        assert error_of(response)["code"] == "no_ready_replica"
        assert int(response.headers["retry-after"]) > 0
    assert backend.stats()["requests"] == 0


@pytest.mark.parametrize(
    "body", [b"{", b"", b"[1]", b'{"messages": []}', b'{"model": 3}', b'{"model": ""}', b"\xff\xfe"]
)
def test_a_body_that_names_no_model_is_400_in_openais_shape(gateway: Gateway, body: bytes) -> None:
    response = post(gateway, CHAT, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert error_of(response)["type"] == "invalid_request_error"


def test_a_path_that_is_not_there_is_404_in_openais_shape(gateway: Gateway) -> None:
    for path in ("/", "/metrics", "/v2/chat/completions", "/team/chat"):
        response = httpx.get(gateway.url + path)
        assert response.status_code == 404
        assert error_of(response)["code"] == "unknown_url"


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "more"),
    [
        ("OPTIONS", CHAT, 405, "method_not_allowed", {}),
        ("DELETE", "/v1/models/x", 405, "method_not_allowed", {}),
        ("GET", CHAT, 405, "method_not_allowed", {}),
        ("POST", "/v1/batches", 404, "batch_service_off", {"json": {"input_file_id": "x"}}),
        ("POST", "/v1/load_lora_adapter", 404, "unknown_url", {"json": {"model": "x"}}),
        ("POST", CHAT, 415, "unsupported_media_type", {"files": {"file": b"x"}, "data": {"model": "x"}}),
        (
            "POST",
            CHAT,
            415,
            "unsupported_encoding",
            {"content": b"\x1f\x8b", "headers": {"content-encoding": "gzip"}},
        ),
        (
            "POST",
            CHAT,
            400,
            "invalid_request",
            {"content": b"", "headers": {"content-type": "application/json"}},
        ),
        ("POST", f"{CHAT}?{'x' * 4000}", 414, "uri_too_long", {"json": {"model": "x"}}),
    ],
)
def test_what_the_api_does_not_take_is_refused_by_its_right_name(
    gateway: Gateway, method: str, path: str, status: int, code: str, more: dict[str, Any]
) -> None:
    response = httpx.request(method, gateway.url + path, timeout=30, **more)
    assert (response.status_code, error_of(response)["code"]) == (status, code)
    assert ("allow" in response.headers) == (status == 405)


def test_an_engines_own_paths_are_not_reached_by_the_endpoints_path_either(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    for path in ("/v1/load_lora_adapter", "/metrics", "/v1/../load", "/v1/%2e%2e/sleep", "//v1/files"):
        response = post(gateway, f"/team/{name}{path}", {"model": name})
        assert response.status_code == 404, path
    assert backend.stats()["requests"] == 0


def test_a_path_that_the_runtime_declares_is_reached_by_model_and_by_endpoint(gateway: Gateway) -> None:
    backend, other = gateway.backend("a"), gateway.backend("b")
    name, without = gateway.endpoint(backend), gateway.endpoint(other)
    gateway.declare(name, "/pooling", "/metrics")
    for path in ("/pooling", f"/team/{name}/pooling"):
        wait_for(lambda path=path: post(gateway, path, {"model": name}).status_code == 200, path)
    for path in ("/metrics", f"/team/{name}/metrics", f"/team/{without}/pooling", "/pooling/../load"):
        assert post(gateway, path, {"model": name}).status_code == 404, path
    assert post(gateway, "/pooling", {"model": without}).status_code == 404
    seen = [request["path"] for request in httpx.get(f"http://{backend.address}/stub/seen").json()]
    assert seen[-2:] == ["/pooling", "/pooling"]
    assert other.stats()["requests"] == 0


def test_a_callers_credentials_reach_no_engine(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    secrets = {"authorization": "Bearer s", "cookie": "a=s", "x-api-key": "s", "api-key": "s", "x-mine": "1"}
    for path in (CHAT, f"/team/{name}{CHAT}"):
        assert post(gateway, path, {"model": f"team/{name}"}, headers=secrets).status_code == 200
    for seen in httpx.get(f"http://{backend.address}/stub/seen").json():
        assert seen["headers"]["x-mine"] == "1"
        assert not secrets.keys() - {"x-mine"} & seen["headers"].keys()


@pytest.mark.parametrize("size", [100, 40_000])
@pytest.mark.parametrize(
    ("sent", "kept"),
    [("my-id-1", True), (str(uuid.uuid4()), True), ("x" * 129, False), ("x" * 5000, False), ("a b", False)],
    ids=["plain", "uuid", "long", "very long", "with a space"],
)
def test_a_caller_finds_its_request_id_in_the_answer_unless_it_is_too_long_or_odd(
    gateway: Gateway, sent: str, kept: bool, size: int
) -> None:
    """A large body's request had another one at the engine than in the answer."""
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    body = {"model": f"team/{name}", "pad": "x" * size}
    response = post(gateway, CHAT, body, headers={"x-request-id": sent})
    (seen,) = httpx.get(f"http://{backend.address}/stub/seen").json()
    assert response.headers["x-request-id"] == seen["headers"]["x-request-id"]
    assert (response.headers["x-request-id"] == sent) is kept
    assert len(response.headers["x-request-id"]) <= 128


def test_models_are_listed_and_found_in_openais_shape(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("m"), names=("listed",))
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none")
    assert client.models.retrieve(f"team/{name}").id == f"team/{name}"  # the SDK sends %2F
    head = httpx.head(f"{gateway.url}/v1/models")
    assert (head.status_code, head.content) == (200, b"")
    models = {model.id: model for model in client.models.list()}
    assert {"listed", f"team/{name}"} <= set(models)
    assert models["listed"].owned_by == f"team/{name}"
    assert models["listed"].created == 1767225600
    assert client.models.retrieve("listed").id == "listed"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("unlisted")


def test_trap_10_a_6_mb_body_passes_and_one_of_34_mb_is_413_in_openais_shape(gateway: Gateway) -> None:
    backend = gateway.backend("big")
    name = gateway.endpoint(backend)
    body = {"model": f"team/{name}", "prompt": "x" * 6_000_000}
    assert post(gateway, "/v1/completions", body).status_code == 200
    seen = httpx.get(f"http://{backend.address}/stub/seen").json()
    assert seen[-1]["length"] > 6_000_000
    response = post(gateway, "/v1/completions", {**body, "prompt": "x" * 34_000_000})
    assert response.status_code == 413
    assert error_of(response)["code"] == "body_too_large"
    assert backend.stats()["requests"] == 1


def test_trap_5_a_client_cannot_choose_its_replica_nor_envoys_retries(gateway: Gateway) -> None:
    mine, other = gateway.backend("mine"), gateway.backend("other")
    gateway.endpoint(other, name="other")
    name = gateway.endpoint(mine)
    forged = {
        "x-gateway-destination-endpoint": other.address,
        "x-gateway-cluster": "team/other/r1",
        "x-gateway-future": "1",
        "x-envoy-max-retries": "9",
        "x-envoy-upstream-rq-timeout-ms": "1",
    }
    for _ in range(5):
        response = post(gateway, CHAT, {"model": f"team/{name}"}, headers={**forged, "x-delay": "0.05"})
        assert response.headers["x-engine"] == "mine"
    headers = httpx.get(f"http://{mine.address}/stub/seen").json()[-1]["headers"]
    assert set(headers["x-gateway-destination-endpoint"].split(",")) == {mine.address}
    assert headers["x-gateway-cluster"] == f"team/{name}/r1"
    assert "x-gateway-future" not in headers
    assert "x-envoy-max-retries" not in headers
    # With no decision (an unknown model) forged headers lead nowhere either.
    assert post(gateway, CHAT, {"model": "nobody"}, headers=forged).status_code == 404
    assert other.stats()["requests"] == 0


def test_nothing_of_a_prompt_or_a_query_is_logged(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("quiet"))
    secret = "correct-horse-battery-staple"
    post(gateway, f"{CHAT}?key={secret}", {"model": f"team/{name}", "messages": [{"content": secret}]})
    post(gateway, CHAT, content=b'{"model": "' + secret.encode())
    assert secret not in gateway.log("picker") + gateway.log("envoy")
