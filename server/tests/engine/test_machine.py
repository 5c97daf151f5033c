"""docs/reference/llmendpoint.md: the engine takes the memory, threads and dtype that its container grants, not the node's.

The files are as kernels write them.
"""

from pathlib import Path

import pytest

from llmendpoint_server.engine.basis import BYTES_PER_THREAD, threads_for
from llmendpoint_server.engine.loading import Folder
from llmendpoint_server.engine.machine import available_memory, cpu_has_bf16

GIB = 2**30


def make_proc(folder: Path, cgroup: str) -> Path:
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {16 * GIB // 1024} kB\n")
    (folder / "proc" / "self" / "cgroup").write_text(cgroup)
    return folder / "proc"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_a_limit_it_is_what_the_machine_has(tmp_path: Path) -> None:
    proc = make_proc(tmp_path, "0::/\n")
    write(tmp_path / "cgroup", memory__max="max\n", memory__current="5\n")
    assert available_memory(proc, tmp_path / "cgroup") == 16 * GIB


def test_a_limit_of_cgroup_v2_counts_less_what_is_used_and_not_reclaimable(tmp_path: Path) -> None:
    proc = make_proc(tmp_path, "0::/pod\n")
    write(
        tmp_path / "cgroup" / "pod",
        memory__max=f"{4 * GIB}\n",
        memory__current=f"{3 * GIB}\n",
        memory__stat=f"anon 7\ninactive_file {GIB}\n",
    )
    assert available_memory(proc, tmp_path / "cgroup") == 2 * GIB


def test_a_limit_of_cgroup_v1_is_found_at_the_mount_or_at_the_own_path(tmp_path: Path) -> None:
    proc = make_proc(tmp_path, "4:memory:/pod\n3:cpu,cpuacct:/\n")
    for folder in (tmp_path / "own" / "memory" / "pod", tmp_path / "mounted" / "memory"):
        write(folder, **{"memory__limit_in_bytes": f"{2 * GIB}\n", "memory__usage_in_bytes": f"{GIB}\n"})
    assert available_memory(proc, tmp_path / "own") == GIB
    assert available_memory(proc, tmp_path / "mounted") == GIB


def test_bf16_is_told_from_the_processor_flags(tmp_path: Path) -> None:
    (tmp_path / "with").write_text("processor : 0\nflags : fpu avx2 avx512_bf16\n")
    (tmp_path / "without").write_text("processor : 0\nflags : fpu avx2\n")
    assert cpu_has_bf16(tmp_path / "with")
    assert not cpu_has_bf16(tmp_path / "without")


def test_a_small_model_gets_one_thread_and_a_large_one_all_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    weights, folder = tmp_path / "model.safetensors", Folder(tmp_path, None)
    counts = []
    for size in (1000, 3 * BYTES_PER_THREAD, 99 * BYTES_PER_THREAD):
        with weights.open("wb") as file:
            file.truncate(size)
        counts.append(threads_for(folder, usable=8))
    assert counts == [1, 3, 8]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads_for(folder, usable=8) == 2
