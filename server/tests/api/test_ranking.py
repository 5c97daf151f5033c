"""docs/api.md: /v1/rerank and /v1/score, by models that score and by models that embed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from server.tests.api.over_http import error_of
from server.tests.server_process import ServerProcess
from server.tests.vector_models import save, save_scorer, sentence_transformer

QUERY = "the pod is ready"
DOCUMENTS = ["the model waits", "rain", "cat sat", "the gateway is ready a b c"]
FLAGS = ("--served-model-name", "team/m", "--served-model-name", "m", "--device", "cpu", "--dtype", "float32")


@pytest.fixture(scope="module")
def scorer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_scorer("bert", tmp_path_factory.mktemp("scorer") / "m")


@pytest.fixture(scope="module")
def embedder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("embedder") / "m"
    return save("bert", path, **sentence_transformer("mean_tokens", normalize=False))


@pytest.fixture(scope="module")
def scorer(scorer_folder: Path) -> Iterator[ServerProcess]:
    with ServerProcess(*FLAGS, model=str(scorer_folder)) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def embedder(embedder_folder: Path) -> Iterator[ServerProcess]:
    with ServerProcess(*FLAGS, model=str(embedder_folder)) as process:
        yield process.wait_ready()


def pair_score(folder: Path, one: str, other: str) -> float:
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForSequenceClassification.from_pretrained(folder),
    )
    inputs = tokenizer(one, other, return_tensors="pt", return_token_type_ids=True)
    with torch.inference_mode():
        return float(model.eval()(**inputs).logits[0, 0].sigmoid())


def cosine(folder: Path, one: str, other: str) -> float:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        vectors = [
            model(input_ids=tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state[0].mean(0)
            for text in (one, other)
        ]
    return float(torch.nn.functional.cosine_similarity(*vectors, dim=0))


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> Any:
    response = httpx.post(server.url + path, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def check_ranking(answer: Any, expected: list[float]) -> None:
    results = answer["results"]
    assert [one["index"] for one in results] == sorted(range(len(expected)), key=lambda at: -expected[at])
    for one in results:
        assert one["relevance_score"] == pytest.approx(expected[one["index"]], abs=1e-5)
        assert one["document"] == {"text": DOCUMENTS[one["index"]]}
    assert answer["model"] == "team/m"
    assert answer["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked_by_the_scores_of_the_model(
    scorer: ServerProcess, scorer_folder: Path, path: str
) -> None:
    answer = post(scorer, path, {"model": "m", "query": QUERY, "documents": DOCUMENTS})
    check_ranking(answer, [pair_score(scorer_folder, QUERY, text) for text in DOCUMENTS])


def test_a_model_that_embeds_ranks_by_the_cosine(embedder: ServerProcess, embedder_folder: Path) -> None:
    answer = post(embedder, "/v1/rerank", {"model": "m", "query": QUERY, "documents": DOCUMENTS})
    check_ranking(answer, [cosine(embedder_folder, QUERY, text) for text in DOCUMENTS])


def test_only_the_best_are_sent_on_demand_and_without_their_texts(scorer: ServerProcess) -> None:
    body = {"query": QUERY, "documents": [{"text": text} for text in DOCUMENTS]}
    whole = post(scorer, "/rerank", body)["results"]
    best = post(scorer, "/rerank", body | {"top_n": 2, "return_documents": False})["results"]
    assert best == [{key: one[key] for key in ("index", "relevance_score")} for one in whole[:2]]
    assert len(post(scorer, "/rerank", body | {"top_n": 0})["results"]) == 4


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_pairs_are_scored_one_with_all_or_one_with_one(
    scorer: ServerProcess, embedder: ServerProcess, scorer_folder: Path, embedder_folder: Path, names: tuple[str, str],
    path: str,
) -> None:  # fmt: skip
    one, other = names
    for server, folder, of in ((scorer, scorer_folder, pair_score), (embedder, embedder_folder, cosine)):
        for firsts, seconds in ((QUERY, DOCUMENTS), (list(reversed(DOCUMENTS)), DOCUMENTS), (QUERY, "rain")):
            answer = post(server, path, {"model": "m", one: firsts, other: seconds})
            texts = seconds if isinstance(seconds, list) else [seconds]
            starts = firsts if isinstance(firsts, list) else [firsts] * len(texts)
            expected = [of(folder, *pair) for pair in zip(starts, texts, strict=True)]
            assert [item["score"] for item in answer["data"]] == pytest.approx(expected, abs=1e-5)
            assert [item["index"] for item in answer["data"]] == list(range(len(texts)))
            assert {item["object"] for item in answer["data"]} == {"score"}


def test_of_a_pair_that_is_too_long_the_longer_text_is_cut_on_demand(
    scorer: ServerProcess, scorer_folder: Path
) -> None:
    body = {"query": QUERY, "documents": ["cat " * 300]}
    response = httpx.post(scorer.url + "/rerank", json=body)
    assert (response.status_code, error_of(response)["code"]) == (400, "context_length_exceeded")
    assert error_of(response)["param"] == "documents[0]"
    answer = post(scorer, "/rerank", body | {"truncate_prompt_tokens": -1})
    assert answer["usage"]["total_tokens"] == 128
    kept = " ".join(["cat"] * (128 - 4 - 3))
    assert answer["results"][0]["relevance_score"] == pytest.approx(
        pair_score(scorer_folder, QUERY, kept), abs=1e-5
    )


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("/v1/rerank", {"documents": ["a"]}, "query", "Missing"),
        ("/v1/rerank", {"query": "a"}, "documents", "Missing"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents", "1 to 1024"),
        ("/v1/rerank", {"query": "a", "documents": ["a"] * 1025}, "documents", "1 to 1024"),
        ("/v1/rerank", {"query": "a", "documents": [7]}, "documents", "strings"),
        ("/v1/rerank", {"query": "a", "documents": [{"text": 7}]}, "documents[0].text", "a string"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "top_n", "0 is all"),
        ("/v1/rerank", {"query": ["a"], "documents": ["a"]}, "query", "a string"),
        ("/v1/score", {"text_1": "a"}, "text_2", "Missing"),
        ("/v1/score", {"documents": "a"}, "queries", "Missing"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_1", "as many of both"),
        ("/v1/score", {"text_1": "a", "queries": "a", "documents": "b"}, "text_1", "two names"),
        ("/v1/score", {"text_1": "a", "text_2": 7}, "text_2", "a string, or a list"),
        ("/v1/score", {"text_1": "a", "text_2": "b", "stream": True}, "stream", "Unknown parameter"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_refused_with_its_field(
    scorer: ServerProcess, path: str, body: Any, param: str, says: str
) -> None:
    response = httpx.post(scorer.url + path, json={"model": "m", **body})
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param
    assert says in error_of(response)["message"]


def test_a_model_that_scores_says_so_where_it_is_asked_for_something_else(
    scorer: ServerProcess, fake_server: ServerProcess
) -> None:
    response = httpx.post(scorer.url + "/v1/embeddings", json={"model": "m", "input": "a"})
    assert response.status_code == 400
    assert "scores pairs of texts: call /v1/rerank or /v1/score" in error_of(response)["message"]
    response = httpx.post(
        fake_server.url + "/v1/rerank", json={"model": "chat", "query": "a", "documents": ["b"]}
    )
    assert response.status_code == 400
    assert "generates text" in error_of(response)["message"]
