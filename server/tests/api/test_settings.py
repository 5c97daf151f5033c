"""docs/contribute/contracts.md: the flags of `llmendpoint-server` are those of the table; a bad one is named and ends with 2."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from llmendpoint_server.api.model_service import make_configure
from llmendpoint_server.errors import ModelNotFound
from llmendpoint_server.protocol import Configure
from llmendpoint_server.settings import Settings, make_parser, parse
from llmendpoint_server.weights.locate import resolve_model

CONTRACTS = Path(__file__).parents[3] / "docs/contribute/contracts.md"


def test_every_flag_of_the_contract_exists_and_no_other() -> None:
    text = CONTRACTS.read_text(encoding="utf-8")
    table = text[text.index("Flags of `llmendpoint-server`") : text.index("| path | meaning |")]
    promised = {
        flag for row in re.findall(r"^\| (`--.*?) \|", table, re.M) for flag in re.findall(r"--[a-z-]+", row)
    }
    offered = {o for action in make_parser()._actions for o in action.option_strings} - {"-h", "--help"}
    assert offered == promised


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        parse(["--help"])
    assert leaving.value.code == 0
    assert "llmendpoint-server --model embedded://demo" in capsys.readouterr().out


def test_the_first_served_name_comes_first_and_the_model_names_itself_without_one() -> None:
    given = parse(
        [
            "--model",
            "/m/x",
            "--served-model-name",
            "b",
            "--served-model-name",
            "a",
            "--served-model-name",
            "b",
        ]
    )
    assert given.served_names == ("b", "a")
    assert parse(["--model", "embedded://demo"]).served_names == ("demo",)
    assert parse(["--model", "/models/qwen3/"]).served_names == ("qwen3",)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2Gi", 2**31), ("512Mi", 2**29), ("1.5Gi", 3 * 2**29), ("3G", 3 * 10**9), ("4096", 4096)],
)
def test_memory_is_a_kubernetes_quantity(text: str, amount: int) -> None:
    assert parse(["--model", "m", "--kv-cache-memory", text]).kv_cache_memory == amount


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--model", "m", "--kv-cache-memory", "2GB"], "--kv-cache-memory"),
        (["--model", "m", "--kv-cache-memory", "0"], "--kv-cache-memory"),
        (["--model", "m", "--max-model-len", "-1"], "--max-model-len"),
        (["--model", "m", "--max-num-seqs", "9" * 5000], "--max-num-seqs"),
        (["--model", "m", "--max-num-batched-tokens", "0"], "--max-num-batched-tokens"),
        (["--model", "m", "--max-num-batched-tokens", str(2**31)], "from 1 to 2147483647"),
        (
            ["--model", "m", "--max-num-batched-tokens", "7", "--max-num-seqs", "8"],
            "--max-num-batched-tokens: 7 is less than --max-num-seqs 8",
        ),
        (["--model", "m", "--port", "70000"], "--port"),
        (["--model", "m", "--device", "tpu"], "--device"),
        (["--model", "m", "--drain-timeout", "soon"], "--drain-timeout"),
        (["--model", "m", "--max-queued-tokens", "0"], "--max-queued-tokens"),
        (["--model", "m", "--default-deadline-ms", "0"], "--default-deadline-ms"),
        (["--model", "m", "--default-deadline-ms", "1.5"], "--default-deadline-ms"),
        (["--model", "m", "--default-deadline-ms", "86400001"], "--default-deadline-ms"),
        (["--model", "m", "--speculative-method", "oracle"], "--speculative-method"),
        (
            ["--model", "m", "--speculative-method", "ngram", "--num-speculative-tokens", "8"],
            "--num-speculative-tokens",
        ),
        (["--model", "m", "--num-speculative-tokens", "3"], "--num-speculative-tokens"),
        (["--model", "m", "--speculative-method", "ngram", "--draft-model", "d"], "--draft-model"),
        (
            ["--model", "m", "--otlp-traces-endpoint", "collector:4317"],
            "such as http://collector:4318/v1/traces",
        ),
        (
            ["--model", "m", "--otlp-traces-endpoint", "http://me:secret@collector"],
            "OTEL_EXPORTER_OTLP_HEADERS",
        ),
        (["--model", "m", "--max-loras", "4"], "argument --max-loras: it needs --enable-lora"),
        (["--model", "m", "--max-lora-rank", "16"], "argument --max-lora-rank: it needs --enable-lora"),
        (["--model", "m", "--lora-modules", "a=b"], "argument --lora-modules: it needs --enable-lora"),
        (["--model", "m", "--trace-sampling", "2"], "--trace-sampling"),
        (["--model", "m", "--trace-sampling", "nan"], "--trace-sampling"),
        (["--model", "m", "--surprise"], "--surprise"),
        ([], "--model"),
    ],
)
def test_a_bad_flag_is_named_and_ends_with_2(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        parse(flags)
    assert leaving.value.code == 2
    assert named in capsys.readouterr().err


def test_defaults_leave_the_choice_to_the_engine() -> None:
    assert parse(["--model", "m"]) == Settings(model="m", served_names=("m",))


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [
        ([], 256 * 4096),
        (["--max-queued-requests", "10"], 10 * 4096),
        (["--max-queued-requests", "10", "--max-queued-tokens", "7"], 7),
    ],
)
def test_the_bound_in_tokens_follows_the_bound_in_requests_unless_it_is_set(
    flags: list[str], tokens: int, tmp_path: Path
) -> None:
    settings = parse(["--model", "m", *flags])
    assert make_configure(settings, tmp_path).max_queued_tokens == tokens


def test_a_draft_model_is_found_as_the_model_is_and_named_if_it_is_not(tmp_path: Path) -> None:
    settings = parse(["--model", "m", "--draft-model", "embedded://demo", "--num-speculative-tokens", "3"])
    assert make_configure(settings, tmp_path).draft_model_path == str(resolve_model("embedded://demo"))
    missing = parse(["--model", "m", "--draft-model", "/no/such/folder"])
    with pytest.raises(ModelNotFound, match="--draft-model /no/such/folder"):
        make_configure(missing, tmp_path)


def test_every_setting_that_the_engine_knows_reaches_it(tmp_path: Path) -> None:
    chosen = Settings(
        "m", ("m",), device="cpu", dtype="float16", quantization="int8", kv_cache_dtype="fp8", max_model_len=7, max_num_seqs=3, max_batched_tokens=9, max_queued_requests=5,
        max_queued_tokens=600, kv_cache_memory=1024, prefix_caching=False, speculative_method="ngram",
        num_speculative_tokens=2, enable_lora=True, max_loras=3, max_lora_rank=4, tensor_parallel_size=2,
    )  # fmt: skip
    default = Settings("m", ("m",))
    sent = make_configure(chosen, tmp_path)
    common = {field.name for field in fields(Settings)} & set(Configure.__struct_fields__)
    assert len(common) == 16
    for name in common:
        assert getattr(chosen, name) != getattr(default, name), f"{name}: give it another value in this test"
        assert getattr(sent, name) == getattr(chosen, name), f"make_configure leaves {name} out"


def test_the_collector_of_traces_may_come_from_opentelemetrys_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parse(["--model", "m"]).otlp_traces_endpoint is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    assert parse(["--model", "m"]).otlp_traces_endpoint is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://one:4318/v1/traces")
    assert parse(["--model", "m"]).otlp_traces_endpoint == "http://one:4318/v1/traces"
    flag = ["--otlp-traces-endpoint", "http://two:4318/v1/traces"]
    assert parse(["--model", "m", *flag]).otlp_traces_endpoint == "http://two:4318/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "none")
    with pytest.raises(SystemExit):
        parse(["--model", "m"])
