"""docs/concepts/models.md: a download checks the room, goes on where it broke off, hashes what arrives, and is shown only when whole.

Real servers on this machine break off, lie and fall silent.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmendpoint_server.errors import (
    AccessDenied,
    BadConfiguration,
    FormatRefused,
    ModelCorrupt,
    ModelNotFound,
    ModelUnavailable,
    NoSpace,
    SourceChanged,
)
from llmendpoint_server.weights.folders import Place
from llmendpoint_server.weights.plan import SourceFile
from llmendpoint_server.weights.progress import Progress, told
from llmendpoint_server.weights.sources import open_source
from tests.hub_stub import Hub
from tests.s3_stub import ObjectStore

from .stage import COMMIT, FILES, KEYS, WANTED, WEIGHTS, Stage, log_of, make_stage

SIZE = len(FILES[WEIGHTS])


def begun(stage: Stage) -> tuple[subprocess.Popen[str], Path]:
    """A download of which a part has arrived, and that part; the rest comes when `stage.faults.gate` is set."""
    stage.faults.gate = threading.Event()
    process = stage.start()
    part = stage.place.partial / f"{WEIGHTS}.part"
    assert stage.faults.reached.wait(30)
    while not (part.exists() and part.stat().st_size):
        assert process.poll() is None
    return process, part


@pytest.fixture(params=["hf", "s3"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    found = make_stage(request.param, tmp_path, monkeypatch)
    yield found
    found.server.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    found = make_stage("s3", tmp_path, monkeypatch)
    yield found
    found.server.close()


def test_a_model_arrives_whole_and_only_once(stage: Stage) -> None:
    progress = stage.fetch()
    assert stage.content() == WANTED
    assert progress.as_json() == {
        "state": "done",
        "bytes": progress.total,
        "total": sum(map(len, WANTED.values())),
    }
    asked = len(stage.faults.ranges)
    stage.fetch()
    assert len(stage.faults.ranges) == asked


def test_a_connection_that_breaks_is_gone_on_with_where_it_broke(stage: Stage) -> None:
    stage.faults.cut_after[stage.key], stage.faults.cuts[stage.key] = 1000, 3
    stage.fetch()
    assert stage.content() == WANTED
    assert [start for name, start in stage.faults.ranges if name == stage.key] == [0, 1000, 2000, 3000]


def test_a_download_that_is_killed_is_gone_on_with_by_the_next(stage: Stage) -> None:
    first, part = begun(stage)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not stage.place.final.exists()
    arrived = part.stat().st_size
    stage.faults.gate.set()
    stage.faults.ranges.clear()
    second = stage.start()
    assert second.wait(60) == 0
    second.communicate()
    assert stage.content() == WANTED
    assert (stage.key, arrived) in stage.faults.ranges


def test_a_download_that_is_stopped_ends_at_once_and_not_as_if_it_were_complete(stage: Stage) -> None:
    process, _ = begun(stage)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    process.communicate()
    stage.faults.gate.set()


def test_a_signal_that_the_kernel_gives_to_a_thread_of_the_download_ends_it_too(stage: Stage) -> None:
    process, _ = begun(stage)
    threads = sorted(int(found.name) for found in Path(f"/proc/{process.pid}/task").iterdir())
    assert ctypes.CDLL(None).tgkill(process.pid, threads[-1], signal.SIGTERM) == 0
    assert process.wait(30) == 128 + signal.SIGTERM
    process.communicate()
    stage.faults.gate.set()


def test_a_file_into_which_somebody_else_wrote_is_not_taken_as_whole(stage: Stage) -> None:
    process, part = begun(stage)
    with part.open("ab") as other:
        other.write(b"another's")
    stage.faults.gate.set()
    assert process.wait(60) == 0
    process.communicate()
    assert stage.content() == WANTED


def test_a_file_that_the_source_truncated_is_named_with_both_sizes(stage: Stage) -> None:
    stage.faults.truncated[stage.key] = 5000
    with pytest.raises(ModelCorrupt, match=f"{WEIGHTS}.*truncated.*5000 bytes.*{SIZE}"):
        stage.fetch()
    assert not stage.place.final.exists()


def test_content_with_another_checksum_is_thrown_away_and_then_refused(stage: Stage) -> None:
    stage.faults.corrupt[stage.key] = 1
    stage.fetch()
    assert stage.content() == WANTED
    shutil.rmtree(stage.root)
    stage.faults.corrupt[stage.key] = 2
    with pytest.raises(ModelCorrupt, match=f"{WEIGHTS} hashes to [0-9a-f]+, twice, and the source says"):
        stage.fetch()
    assert not stage.place.final.exists()


def test_a_file_that_lost_its_end_on_the_volume_is_fetched_again(stage: Stage) -> None:
    stage.fetch()
    (stage.place.final / "config.json").write_bytes(b"")
    stage.faults.ranges.clear()
    stage.fetch()
    assert stage.content() == WANTED
    assert len(stage.faults.ranges) == 1


def test_a_model_that_does_not_fit_is_told_with_both_figures_before_a_byte_is_asked_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(stage.source)
    monkeypatch.setattr(type(source), "files", lambda *_: (SourceFile(WEIGHTS, 2**60, "x"),))
    with pytest.raises(
        NoSpace, match=r"the volume has [\d.]+ \wiB free, and 1048576\.0 TiB are still to come"
    ):
        stage.fetch()
    assert stage.faults.ranges == []


def test_a_volume_that_fills_up_in_the_middle_is_told_as_full(stage: Stage) -> None:
    stage.place.partial.mkdir(parents=True)
    (stage.place.partial / f"{WEIGHTS}.part").symlink_to("/dev/full")
    with pytest.raises(NoSpace, match="are still to come"):
        stage.fetch()


def test_pickles_are_refused_before_a_byte_is_asked_for(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickles").mkdir()
    kind = "hf" if isinstance(stage.server, Hub) else "s3"
    files = {"config.json": b"{}", "pytorch_model.bin": b"a pickle"}
    other = make_stage(kind, tmp_path / "pickles", monkeypatch, files)
    with pytest.raises(FormatRefused, match=r"all weights are pickles \(pytorch_model\.bin\)"):
        other.fetch(COMMIT if kind == "hf" else None)
    assert other.faults.ranges == []
    other.fetch(allow_pickle=True)
    assert other.content() == files
    other.server.close()


def test_what_is_not_there_is_not_found(stage: Stage) -> None:
    with pytest.raises(ModelNotFound, match="nothing"):
        open_source(f"{stage.source}-nothing").resolve(False)


def test_a_source_that_is_away_is_asked_several_times_and_may_answer_later(stage: Stage) -> None:
    revision = stage.resolve()
    stage.server.down = True
    with pytest.raises(ModelUnavailable, match="503"):
        stage.fetch(revision)
    assert stage.sleeps == [1, 2, 4, 8, 16]
    stage.server.down = False
    stage.fetch(revision)
    assert stage.content() == WANTED


def test_wrong_credentials_are_told_as_such(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "other")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    with pytest.raises(AccessDenied, match=r"40[13].*these credentials may not read it"):
        stage.resolve()


def test_a_bucket_that_is_open_to_all_needs_no_keys(store: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(store.server, ObjectStore)
    store.server.keys = None
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    store.fetch()
    assert store.content() == WANTED


def test_an_object_that_was_replaced_since_is_not_taken_for_the_old_one(store: Stage) -> None:
    assert isinstance(store.server, ObjectStore)
    revision, key = store.resolve(), f"demo/{WEIGHTS}"
    store.server.objects["demo/README.md"] = b"what is not downloaded may change"
    assert store.resolve() == revision
    file = next(f for f in open_source(store.source).files(revision, False) if f.path == WEIGHTS)
    store.server.objects[key] = b"new weights"
    with pytest.raises(SourceChanged, match=f"this revision was made of {revision}"):
        store.fetch(revision)
    with (
        pytest.raises(SourceChanged, match="was replaced"),
        open_source(store.source).open(file, revision, 0),
    ):
        pass


def test_a_credential_is_for_the_hub_and_not_for_where_it_redirects_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage("hf", tmp_path, monkeypatch)
    assert isinstance(stage.server, Hub)
    elsewhere = ObjectStore({"blob": FILES[WEIGHTS]})
    stage.server.redirects[WEIGHTS] = f"{elsewhere.url.replace('127.0.0.1', 'localhost')}/models/blob"
    stage.fetch()
    assert stage.content() == WANTED
    assert elsewhere.headers == [None]
    elsewhere.close()
    stage.server.close()


def test_two_processes_of_one_machine_download_once(stage: Stage) -> None:
    both = [stage.start(), stage.start()]
    assert [log_of(process)[0] for process in both] == [0, 0]
    assert stage.content() == WANTED
    assert len(stage.faults.ranges) == len(WANTED)


def test_the_command_leaves_with_the_code_and_the_cause(stage: Stage) -> None:
    stage.faults.corrupt[stage.key] = 2
    code, cause = log_of(stage.start())
    assert code == 8
    assert f"{WEIGHTS} hashes to" in cause
    assert KEYS.secret not in cause


def test_progress_can_be_asked_for() -> None:
    progress = Progress()
    progress.begin(10)
    progress.add(4)
    with (
        told(progress, 0, "127.0.0.1") as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=5) as reply,
    ):
        assert json.load(reply) == {"state": "downloading", "bytes": 4, "total": 10}


def test_what_is_removed_leaves_nothing_behind(store: Stage) -> None:
    store.fetch()
    Place(store.root, "other").prepare()
    store.place.remove()
    assert [path.name for path in store.root.iterdir()] == [".partial-other"]
    store.place.remove()


def test_a_volume_that_cannot_be_written_is_told_as_that(tmp_path: Path) -> None:
    error = Place(tmp_path, "x").failed(PermissionError(13, "Permission denied"), 0)
    assert isinstance(error, BadConfiguration)
    assert "cannot be written by user" in str(error)


@pytest.mark.parametrize("source", ["hf://only-a-name", "gs://bucket/x", "s3:///x", "/plain"])
def test_a_source_of_another_kind_is_refused_with_what_is_taken(source: str) -> None:
    with pytest.raises(BadConfiguration, match=r"hf://<organisation>/<name>"):
        open_source(source)
