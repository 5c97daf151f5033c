"""What a client of the real gateway is answered."""

import httpx
import openai
import pytest

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


def test_models_are_listed_and_found_in_openais_shape(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("m"), names=("listed",))
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none")
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
    assert headers["x-gateway-destination-endpoint"] == mine.address
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
