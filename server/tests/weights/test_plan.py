"""docs/concepts/models.md: which files of a source are downloaded, and what is refused."""

from __future__ import annotations

import pytest

from llmendpoint_server.weights.plan import (
    Checksum,
    Refusal,
    SourceFile,
    choose_files,
    etag_checksum,
    human,
    is_safe_path,
    manifest_hash,
    missing_bytes,
)

MD5 = "9e107d9d372bb6826bd81d3542a419d6"


def listing(*paths: str) -> list[SourceFile]:
    return [SourceFile(path, 10, "tag") for path in paths]


def chosen(*paths: str, allow_pickle: bool = False) -> list[str]:
    found = choose_files(listing(*paths), allow_pickle)
    assert not isinstance(found, Refusal), found
    return [file.path for file in found]


def refused(*paths: str) -> Refusal:
    found = choose_files(listing(*paths), allow_pickle=False)
    assert isinstance(found, Refusal)
    return found


def test_weights_come_with_configuration_and_tokenizer_but_without_code() -> None:
    found = chosen("config.json", "tokenizer.model", "modeling.py", "model.safetensors", "README.md", "a.bin")
    assert found == ["config.json", "model.safetensors", "tokenizer.model"]


def test_a_model_that_embeds_comes_with_what_says_how_it_pools() -> None:
    found = chosen(
        "config.json",
        "model.safetensors",
        "modules.json",
        "1_Pooling/config.json",
        "onnx/config.json",
        "onnx/model.onnx",
    )
    assert found == ["1_Pooling/config.json", "config.json", "model.safetensors", "modules.json"]


def test_copies_of_the_weights_in_folders_and_in_other_formats_stay_where_they_are() -> None:
    found = chosen("config.json", "m.safetensors", "original/c.safetensors", "original/params.json", "m.gguf")
    assert found == ["config.json", "m.safetensors"]
    assert chosen("config.json", "fp8/config.json", "fp8/m.safetensors", "docs/a.json") == [
        "config.json",
        "fp8/config.json",
        "fp8/m.safetensors",
    ]


def test_pickles_alone_are_refused_by_name_unless_they_are_allowed() -> None:
    found = refused("config.json", "pytorch_model.bin")
    assert found.pickles
    assert "pytorch_model.bin" in found.message
    assert chosen("config.json", "pytorch_model.bin", allow_pickle=True) == [
        "config.json",
        "pytorch_model.bin",
    ]
    assert chosen("config.json", "m.bin", "m.safetensors", allow_pickle=True) == [
        "config.json",
        "m.safetensors",
    ]


def test_a_source_without_weights_is_no_model() -> None:
    found = refused("config.json")
    assert not found.pickles
    assert "*.safetensors" in found.message


@pytest.mark.parametrize(
    "path", ["../x.json", "/etc/x.json", "a/../../x.json", "a//x.json", "a\\x.json", "."]
)
def test_a_name_that_leads_out_of_the_folder_is_refused(path: str) -> None:
    assert not is_safe_path(path)
    assert "leads out" in refused("model.safetensors", path).message


def test_the_manifest_hash_is_what_the_contract_says() -> None:
    files = [SourceFile("b", 2, "y"), SourceFile("a", 1, "x")]
    assert (
        manifest_hash(files) == manifest_hash(reversed(files)) == "bde2ae21bd2cc7bb1b4deac6d135a047f2cde608"
    )
    assert manifest_hash([SourceFile("b", 2, "z"), files[1]]) != manifest_hash(files)


@pytest.mark.parametrize(
    ("etag", "headers", "known"),
    [
        (MD5, {}, True),
        (MD5, {"x-amz-server-side-encryption": "AES256"}, True),
        (MD5, {"x-amz-server-side-encryption": "aws:kms"}, False),
        (MD5, {"x-amz-server-side-encryption-customer-algorithm": "AES256"}, False),
        (f"{MD5}-12", {}, False),
    ],
)
def test_an_etag_is_a_checksum_only_where_it_is_the_md5(
    etag: str, headers: dict[str, str], known: bool
) -> None:
    assert etag_checksum(etag, headers) == (Checksum("md5", MD5) if known else None)


def test_what_is_on_disk_already_need_not_come_again() -> None:
    assert missing_bytes(listing("a", "b"), {"a": 4, "b": 12}) == 6
    assert [human(size) for size in (12, 15 * 2**30 + 2**28, 3 * 2**50)] == ["12 B", "15.2 GiB", "3072.0 TiB"]
