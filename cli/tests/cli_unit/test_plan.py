"""docs/reference/cli.md: `plan` judges a folder, a model of a hub, a manifest or plain numbers, and asks no cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from llmendpoint_cli.__main__ import app
from llmendpoint_cli.errors import BadUsage, CliError, NoAccess, NotFound, Refused
from tests.hub_stub import MODEL, Hub

from .test_tree import check_golden_text

COMMIT = "1" * 40
QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 36, "intermediate_size": 12288, "vocab_size": 151936,
    "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "Qwen3-8B"
    found.mkdir()
    (found / "config.json").write_text(json.dumps(QWEN3_8B))
    return found


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command here may look for one, nor for a hub outside."""
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "240")


def run(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output; an error of ours is raised, as the entry point catches it."""
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    if isinstance(result.exception, CliError):
        raise result.exception
    return result.exit_code, result.output


def answer(*arguments: str | Path) -> dict[str, Any]:
    reports: list[dict[str, Any]] = json.loads(run(*arguments, "-o", "json")[1])
    assert len(reports) == 1
    return reports[0]


def manifest(path: Path, **spec: Any) -> Path:
    whole = {"model": {"source": "pvc://models/qwen3-8b"}, **spec}
    path.write_text(yaml.safe_dump({"kind": "LLMEndpoint", "metadata": {"name": "chat"}, "spec": whole}))
    return path


def test_the_accelerators_that_would_do_the_cheapest_first(folder: Path) -> None:
    code, text = run(folder, "--max-model-len", "8192", "--max-num-seqs", "16")
    assert code == 0
    check_golden_text("plan-choices.txt", text.replace(str(folder), "Qwen3-8B"))


def test_what_fits_and_what_it_costs(folder: Path) -> None:
    code, text = run(
        folder, "--accelerator", "NVIDIA-L4", "--max-model-len", "8192", "--max-num-seqs", "16", "--api-price", "2"
    )  # fmt: skip
    assert code == 0
    check_golden_text("plan-fits.txt", text.replace(str(folder), "Qwen3-8B"))


def test_what_does_not_fit_ends_with_1_and_says_what_would(folder: Path) -> None:
    code, text = run(folder, "--accelerator", "t4", "--max-model-len", "8192")
    assert code == 1
    check_golden_text("plan-too-large.txt", text.replace(str(folder), "Qwen3-8B"))


def test_a_measured_throughput_and_a_price_of_ones_own_replace_the_estimates(folder: Path) -> None:
    found = answer(
        folder, "--accelerator", "l4", "--price", "0.72", "--tokens-per-second", "1000", "--api-price", "0.4"
    )
    cost = found["options"][0]["cost"]
    assert cost["perThousand"] == pytest.approx(0.72 / 3600)
    assert cost["breakeven"] == pytest.approx(500)
    assert cost["measured"] is True


def test_a_manifest_says_what_is_asked_and_a_folder_what_the_model_is(folder: Path, tmp_path: Path) -> None:
    accelerator = {"kind": "nvidia.com/gpu", "count": 2, "product": "L4"}
    path = manifest(
        tmp_path / "chat.yaml", resources={"accelerator": accelerator}, engine={"maxModelLen": 8192},
        runtime={"name": "vllm"},
    )  # fmt: skip
    found = answer("-f", path, "--model", folder)
    option = found["options"][0]
    assert (found["model"], option["accelerator"], option["count"], option["context"]) == (
        "chat",
        "L4",
        2,
        8192,
    )


def test_our_own_engine_divides_a_model_over_a_number_that_divides_its_heads(
    folder: Path, tmp_path: Path
) -> None:
    accelerator = {"kind": "nvidia.com/gpu", "count": 4, "product": "L4"}
    path = manifest(tmp_path / "m.yaml", resources={"accelerator": accelerator})
    four = answer("-f", path, "--model", folder)["options"][0]
    one = answer("-f", path, "--model", folder, "--count", "1")["options"][0]
    assert (four["count"], four["weights"]) == (4, one["weights"] / 4)
    three = answer("-f", path, "--model", folder, "--count", "3")["options"][0]
    assert three["outcome"] == "NotDivisible"


def test_a_draft_model_is_counted_whether_an_option_or_the_manifest_names_it(
    folder: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    (small / "config.json").write_text(json.dumps(QWEN3_8B | {"num_hidden_layers": 2}))
    path = manifest(
        tmp_path / "m.yaml", resources={"accelerator": {"kind": "nvidia.com/gpu", "product": "L4"}},
        engine={"maxModelLen": 4096}, runtime={"args": [f"--draft-model={small}"]},
    )  # fmt: skip
    named = answer("-f", path, "--model", folder)["options"][0]
    assert named["draft"] > 10**9
    assert "draft model" in named["message"]
    options = ("--accelerator", "l4", "--max-model-len", "4096")
    alone, beside = answer(folder, *options), answer(folder, *options, "--draft-model", small)
    assert beside["options"][0]["draft"] == named["draft"]
    assert alone["options"][0]["draft"] == 0
    assert alone["options"][0]["cache"] == beside["options"][0]["cache"] + named["draft"]
    with pytest.raises(NotFound):
        run(folder, "--draft-model", "pvc://models/small")


def test_a_cache_of_eight_bits_takes_half(folder: Path) -> None:
    whole, half = answer(folder), answer(folder, "--kv-cache-dtype", "fp8")
    assert whole["kvBytesPerToken"] == 2 * half["kvBytesPerToken"]


@pytest.mark.parametrize("accelerator", [{"product": "L4"}, {}])
def test_our_own_engine_does_not_load_every_quantization(
    folder: Path, tmp_path: Path, accelerator: dict[str, str]
) -> None:
    (folder / "config.json").write_text(
        json.dumps({**QWEN3_8B, "quantization_config": {"quant_method": "aqlm"}})
    )
    asked = {
        "resources": {"accelerator": {"kind": "nvidia.com/gpu", **accelerator}},
        "engine": {"maxModelLen": 2048},
    }
    code, text = run("-f", manifest(tmp_path / "m.yaml", **asked), "--model", folder)
    assert code == 1
    assert "in a way that this runtime does not load: take another runtime" in text
    other = manifest(tmp_path / "o.yaml", runtime={"name": "vllm"}, **asked)
    assert answer("-f", other, "--model", folder)["fits"] is True


def test_a_slice_has_its_own_memory_and_not_the_whole_ones_price(folder: Path) -> None:
    [option] = answer(folder, "--accelerator", "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb")["options"]
    assert (option["memory"], "cost" in option) == (40 * 10**9, False)


def test_a_manifest_without_a_product_is_planned_for_all_of_its_kind(folder: Path, tmp_path: Path) -> None:
    path = manifest(tmp_path / "m.yaml", resources={"accelerator": {"kind": "amd.com/gpu"}})
    found = answer("-f", path, "--model", folder)
    assert {option["accelerator"] for option in found["options"]} == {"mi250", "mi300x", "mi325x"}


def test_memory_that_the_spec_names_wins(folder: Path, tmp_path: Path) -> None:
    accelerator = {"kind": "example.com/npu", "memory": "64Gi"}
    found = answer(
        "-f", manifest(tmp_path / "m.yaml", resources={"accelerator": accelerator}), "--model", folder
    )
    assert found["options"][0]["memory"] == 64 * 2**30
    assert "cost" not in found["options"][0]


def test_a_model_may_be_given_by_its_numbers() -> None:
    given = ("--parameters", "8B", "--layers", "36", "--kv-heads", "8", "--head-dim", "128")
    found = answer(*given, "--accelerator", "l4", "--max-model-len", "8192")
    assert found["weights"] == 16 * 10**9
    assert found["kvBytesPerToken"] == 147_456


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    (folder / "model.safetensors").write_bytes(b"x" * 5000)
    found = Hub({COMMIT: folder}, main=COMMIT)
    yield found
    found.close()


def test_of_a_hub_only_the_config_and_the_list_of_files_are_read(hub: Hub) -> None:
    found = answer(f"hf://{MODEL}", "--accelerator", "l4", "--hub-endpoint", hub.url)
    assert found["weights"] == 5000
    assert hub.requests == [f"/{MODEL}/resolve/main/config.json", f"/api/models/{MODEL}/tree/main"]


def test_a_model_that_a_hub_does_not_have(hub: Hub) -> None:
    with pytest.raises(NotFound, match="acme/other@main"):
        run("acme/other", "--hub-endpoint", hub.url)
    with pytest.raises(NotFound, match=f"{MODEL}@v9"):
        run(f"{MODEL}@v9", "--hub-endpoint", hub.url)


def test_a_hub_that_does_not_answer() -> None:
    with pytest.raises(NoAccess, match="a local folder needs no hub"):
        run("acme/demo")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ([], BadUsage, "name one model"),
        (["acme/demo", "--parameters", "8B"], BadUsage, "all four"),
        (["not a model"], BadUsage, "neither a folder nor"),
        (["acme/demo", "--accelerator", "x9"], BadUsage, "known are t4"),
        (["acme/demo", "--accelerator-memory", "24GB"], BadUsage, "24Gi"),
        (["pvc://models/chat"], NotFound, "local copy"),
        (["./nowhere"], NotFound, "not on this machine"),
        (["-f", "/nonexistent.yaml"], BadUsage, "cannot be read"),
        (["--parameters", "many", "--layers", "1", "--kv-heads", "1", "--head-dim", "64"], BadUsage, "8B"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_what_would_be_right(
    arguments: list[str], error: type[CliError], said: str
) -> None:
    with pytest.raises(error, match=said):
        run(*arguments)


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for text, said in (("kind: Pod", "holds no LLMEndpoint"), ("a: [", "cannot be read")):
        path.write_text(text)
        with pytest.raises(BadUsage, match=said):
            run("-f", path)
    with pytest.raises(BadUsage, match="24Gi"):
        run("-f", manifest(path, engine={"kvCacheMemory": "much"}))


def test_a_model_that_the_formulas_do_not_know_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**QWEN3_8B, "model_type": "rwkv"}))
    with pytest.raises(Refused, match="rwkv"):
        run(folder)
