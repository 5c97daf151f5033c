"""docs/guides/embeddings.md: a text's vector is that of transformers, whatever is computed beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoModelForSequenceClassification

from llmendpoint_server.core.pooling.request import Input
from llmendpoint_server.engine.loading import open_folder
from llmendpoint_server.engine.pooling import bring_up
from llmendpoint_server.engine.pooling.bring_up import PoolingModel
from llmendpoint_server.engine.pooling.task import read_pooling, task_of
from llmendpoint_server.errors import BadConfiguration, ModelNotFound, UnsupportedArchitecture
from llmendpoint_server.protocol import Configure
from server.tests.vector_models import (
    SHAPES,
    VOCABULARY,
    save,
    save_causal,
    save_scorer,
    sentence_transformer,
)

CLOSE = 1e-5


def load(folder: Path, **options: Any) -> PoolingModel:
    opened = open_folder(str(folder))
    settings = Configure(str(folder), device="cpu", dtype="float32", max_batched_tokens=200, **options)
    return bring_up.load(settings, opened, task_of(opened))


def numbers(vector: bytes | None) -> torch.Tensor:
    assert vector is not None
    return torch.frombuffer(bytearray(vector), dtype=torch.float32)


def pooled(hidden: torch.Tensor, mode: str, normalize: bool) -> torch.Tensor:
    """Of one text, `[tokens, size]`."""
    vector = {"mean_tokens": hidden.mean(0), "cls_token": hidden[0], "lasttoken": hidden[-1]}[mode]
    return torch.nn.functional.normalize(vector, dim=0) if normalize else vector


MODES = ("mean_tokens", "cls_token", "lasttoken")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By shape and mode: what serves it, and transformers' own model."""
    made: dict[tuple[str, str, bool], tuple[PoolingModel, Any]] = {}

    def get(shape: str, mode: str, normalize: bool) -> tuple[PoolingModel, Any]:
        key = shape, mode, normalize
        if key not in made:
            folder = save(
                shape, tmp_path_factory.mktemp(shape) / "m", **sentence_transformer(mode, normalize)
            )
            made[key] = load(folder), AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        return made[key]

    return get


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_a_vector_is_transformers_own_whatever_is_computed_beside_it(
    served: Any, shape: str, mode: str, normalize: bool, lengths: list[int], seed: int
) -> None:
    model, theirs = served(shape, mode, normalize)
    draw = torch.Generator().manual_seed(seed)
    inputs = [
        Input(tuple(torch.randint(1, len(VOCABULARY), (length,), generator=draw).tolist()))
        for length in lengths
    ]
    for one, vector in zip(inputs, model.runner.run(inputs), strict=True):
        with torch.inference_mode():
            hidden = theirs(input_ids=torch.tensor([one.tokens])).last_hidden_state[0]
        expected = pooled(hidden, mode, normalize)
        assert (numbers(vector) - expected).abs().max() < CLOSE * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("shape", ["bert", "xlm-roberta", "modernbert", "qwen3"])
@pytest.mark.parametrize("activation", [None, "torch.nn.modules.linear.Identity"])
def test_a_pairs_score_is_transformers_own(tmp_path: Path, shape: str, activation: str | None) -> None:
    own = {} if activation is None else {"sentence_transformers": {"activation_fn": activation}}
    folder = save_scorer(shape, tmp_path / "m", **own)
    model = load(folder)
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    pairs = [Input((2, 5, 6, 3, 7, 8, 9, 3), 4), Input((2, 5, 3, 7, 3), 3), Input((2, 9, 3))]
    for one, vector in zip(pairs, model.runner.run(pairs), strict=True):
        types = (
            [0] * one.second + [1] * (len(one.tokens) - one.second) if one.second else [0] * len(one.tokens)
        )
        more = {"token_type_ids": torch.tensor([types])} if shape == "bert" else {}
        with torch.inference_mode():
            logit = theirs(input_ids=torch.tensor([one.tokens]), **more).logits[0, 0]
        expected = logit if activation else logit.sigmoid()
        assert numbers(vector).tolist() == pytest.approx([float(expected)], abs=CLOSE)
    assert (model.loaded.task, model.loaded.dimensions) == ("score", 0)


def test_the_types_of_a_pairs_tokens_count(tmp_path: Path) -> None:
    runner = load(save_scorer("bert", tmp_path / "m")).runner
    one, other = runner.run([Input((2, 5, 3, 7, 3), 3), Input((2, 5, 3, 7, 3))])
    assert one != other


@pytest.mark.parametrize(
    ("shape", "options", "task"),
    [
        ("bert", {}, "embed"),
        ("modernbert", {}, "embed"),
        ("llama", {}, "embed"),
        ("bert", sentence_transformer("mean_tokens"), "embed"),
    ],
)
def test_a_model_without_a_head_embeds(
    tmp_path: Path, shape: str, options: dict[str, Any], task: str
) -> None:
    assert task_of(open_folder(str(save(shape, tmp_path / "m", **options)))) == task


def test_a_decoder_with_its_head_generates_unless_it_is_of_sentence_transformers(tmp_path: Path) -> None:
    assert task_of(open_folder(str(save_causal(tmp_path / "a")))) == "generate"
    folder = save_causal(tmp_path / "b", **sentence_transformer("lasttoken"))
    assert task_of(open_folder(str(folder))) == "embed"
    assert load(folder).loaded.dimensions == 32


@pytest.mark.parametrize(("shape", "kind"), [("bert", "cls"), ("xlm-roberta", "cls"), ("qwen3", "last")])
def test_without_files_of_sentence_transformers_an_encoder_pools_its_first_token_and_a_decoder_its_last(
    tmp_path: Path, shape: str, kind: str
) -> None:
    pooling = read_pooling(open_folder(str(save(shape, tmp_path / "m"))))
    assert (pooling.kind, pooling.normalize) == (kind, True)


def test_newer_files_name_the_mode_in_one_field(tmp_path: Path) -> None:
    modules = sentence_transformer("mean_tokens")["modules"]
    folder = save("bert", tmp_path / "m", modules=modules, pooling={"pooling_mode": "lasttoken"})
    assert read_pooling(open_folder(str(folder))).kind == "last"


def test_positions_of_padding_are_no_room_for_tokens(tmp_path: Path) -> None:
    assert load(save("xlm-roberta", tmp_path / "m")).loaded.max_model_len == 127
    assert load(save("bert", tmp_path / "n")).loaded.max_model_len == 128


def test_the_length_that_a_model_was_trained_for_bounds_its_inputs(tmp_path: Path) -> None:
    folder = save("bert", tmp_path / "m", **sentence_transformer("mean_tokens"))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 64, "do_lower_case": False})
    )
    assert load(folder).loaded.max_model_len == 64
    with pytest.raises(BadConfiguration, match="at most 64"):
        load(folder, max_model_len=65)


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises((UnsupportedArchitecture, BadConfiguration, ModelNotFound)) as refused:
        load(folder, **options)
    return str(refused.value)


def test_what_cannot_be_pooled_is_refused_with_what_can(tmp_path: Path) -> None:
    folder = save("bert", tmp_path / "a", **sentence_transformer("max_tokens"))
    assert "pools by max_tokens" in refusal(folder)
    assert "mean, cls or last-token" in refusal(folder)
    modules = sentence_transformer("mean_tokens")
    modules["modules"].append({"type": "sentence_transformers.models.Dense", "path": "2_Dense"})
    assert "a module Dense" in refusal(save("bert", tmp_path / "b", **modules))
    no_file = {"modules": modules["modules"][:2]}
    assert "1_Pooling/config.json" in refusal(save("bert", tmp_path / "c", **no_file))


@pytest.mark.parametrize("labels", [2, 3])
def test_a_model_of_several_labels_is_refused(tmp_path: Path, labels: int) -> None:
    assert f"into {labels} labels" in refusal(save_scorer("bert", tmp_path / "m", labels=labels))


def test_another_activation_than_those_that_are_known_is_refused(tmp_path: Path) -> None:
    folder = save_scorer("bert", tmp_path / "m", sbert_ce_default_activation_function="torch.nn.Tanh")
    assert "goes through Tanh" in refusal(folder)


def test_weights_that_are_not_there_are_not_made_up(tmp_path: Path) -> None:
    folder = save("bert", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 3}
    (folder / "config.json").write_text(json.dumps(config))
    assert "lacks weights: encoder.layer.2." in refusal(folder)


def test_settings_of_models_that_generate_are_refused(tmp_path: Path) -> None:
    folder = save("bert", tmp_path / "m")
    assert "--quantization" in refusal(folder, quantization="int8")
    assert "speculation" in refusal(folder, speculative_method="ngram")


def test_a_vector_that_is_no_number_is_none_and_the_others_are_there(tmp_path: Path) -> None:
    runner = load(save("bert", tmp_path / "m")).runner
    with torch.no_grad():
        runner._model.embeddings.word_embeddings.weight[7] = float("nan")
    good, bad, other = runner.run([Input((5, 6)), Input((7, 6, 5)), Input((8, 6, 5))])
    assert (bad, good is None, other is None) == (None, False, False)


@pytest.mark.parametrize(
    ("config", "cuts"),
    [({}, None), ({"is_matryoshka": True}, ()), ({"matryoshka_dimensions": [8, 64]}, (8,))],
)
def test_a_vector_may_be_cut_where_the_model_was_trained_for_it(
    tmp_path: Path, config: Any, cuts: Any
) -> None:
    assert load(save("bert", tmp_path / "m", **config)).loaded.cuts == cuts
