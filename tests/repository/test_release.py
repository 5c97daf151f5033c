"""docs/contribute/releasing.md: the release workflow is made of commands that run by hand, and they refuse before they harm."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import release
from tests.repository.names import ROOT, make_targets, unknown_targets

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def workflow() -> dict[str, Any]:
    found: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text())
    return {("on" if key is True else key): value for key, value in found.items()}  # YAML 1.1: `on` is true


def steps() -> list[dict[str, Any]]:
    return [step for job in workflow()["jobs"].values() for step in job["steps"]]


def test_each_command_of_the_workflow_is_in_the_repository() -> None:
    assert unknown_targets(WORKFLOW.read_text()) == set()
    called = [line for step in steps() for line in step.get("run", "").splitlines() if "make " in line]
    targets = {re.findall(r"make ([a-z0-9-]+)", line)[0] for line in called}
    assert targets == {target for target in make_targets() if target.startswith("release-")}
    for target in targets:
        assert f"-m tests.release {target.removeprefix('release-')}" in make_targets()[target]


def test_each_job_and_step_has_the_keys_that_the_service_knows() -> None:
    found = workflow()
    assert set(found) == {"name", "on", "permissions", "concurrency", "env", "jobs"}
    for job in found["jobs"].values():
        assert set(job) <= {"runs-on", "timeout-minutes", "permissions", "strategy", "needs", "steps"}
        assert job.get("needs", "images") in found["jobs"]
        assert job["timeout-minutes"] > 0
    for step in steps():
        assert set(step) <= {"name", "if", "env", "run", "uses", "with"}
        assert ("run" in step) != ("uses" in step)


def test_nobody_elses_code_runs_in_it_and_no_registry_is_written_in() -> None:
    for step in steps():
        assert step.get("uses", "actions/").startswith("actions/")
        assert "${{" not in step.get("run", "").replace("${{ matrix.image }}", ""), (
            "values come by the environment"
        )
    assert re.findall(r"[a-z0-9-]+\.(?:io|com|dev|org|net)\b", WORKFLOW.read_text()) == []
    assert workflow()["env"]["REGISTRY"] == "${{ inputs.registry || vars.RELEASE_REGISTRY }}"


def test_every_image_of_the_product_is_built_from_a_target_that_is_there() -> None:
    parts = {image.part for image in release.IMAGES}
    assert set(workflow()["jobs"]["images"]["strategy"]["matrix"]["image"]) == parts
    for image in release.IMAGES:
        stages = re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / image.dockerfile).read_text(), re.MULTILINE)
        assert image.target is None or image.target in stages


def test_a_pushed_image_is_for_both_architectures_with_sbom_and_provenance() -> None:
    command = release.build_command(release.IMAGES[0], "registry.example.com/llm", "1.2.3", "abc")
    assert command[3:5] == ["--platform", "linux/amd64,linux/arm64"]
    assert {"--sbom=true", "--provenance=mode=max", "--push"} <= set(command)
    assert "registry.example.com/llm/llmendpoint-operator:1.2.3" in command


def test_without_a_registry_nothing_is_pushed() -> None:
    command = release.build_command(release.IMAGES[0], "", "1.2.3", "abc")
    assert "--push" not in command
    assert (
        release.with_images_of("", "  repository: llmendpoint-server\n")
        == "  repository: llmendpoint-server\n"
    )


@pytest.mark.parametrize("registry", ["registry.example.com/llm", "127.0.0.1:5000/llm"])
def test_the_released_chart_takes_every_image_of_ours_from_its_registry(registry: str) -> None:
    values = yaml.safe_load(release.with_images_of(registry, (release.CHART / "values.yaml").read_text()))
    parts = {"operator": "operator", "gateway": "gateway", "runtime": "server", "simulator": "simulator"}
    for key, part in parts.items():
        assert values[key]["image"]["repository"] == f"{registry}/llmendpoint-{part}"
    assert values["models"]["image"]["repository"] == ""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that hold the version, with a changelog that has it."""
    for project in release.PROJECTS:
        (tmp_path / project).mkdir(exist_ok=True)
        shutil.copy(ROOT / project / "pyproject.toml", tmp_path / project)
    chart = tmp_path / release.CHART.relative_to(ROOT)
    chart.mkdir(parents=True)
    shutil.copy(release.CHART / "Chart.yaml", chart)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{release.version_of()}] - 2026-12-01\n")
    return tmp_path


def test_a_tag_of_the_checkouts_version_is_released(checkout: Path) -> None:
    version = release.version_of()
    assert release.check(f"v{version}", checkout) == version


def test_another_tag_is_refused(checkout: Path) -> None:
    with pytest.raises(release.ReleaseError, match="the tag is main"):
        release.check("main", checkout)


@pytest.mark.parametrize("file", ["cli/pyproject.toml", "charts/llmendpoint/Chart.yaml"])
def test_a_version_that_was_forgotten_is_named(checkout: Path, file: str) -> None:
    version = release.version_of()
    path = checkout / file
    path.write_text(path.read_text().replace(version, "9.9.9"))
    with pytest.raises(release.ReleaseError, match=rf"{path.name}.* says 9\.9\.9"):
        release.check(f"v{version}", checkout)


def test_a_changelog_without_the_version_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    with pytest.raises(release.ReleaseError, match="has no section"):
        release.check(f"v{release.version_of()}", checkout)


def test_a_program_that_is_missing_or_fails_ends_it_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match="no-such-program is not installed"):
        release._run(["no-such-program"], tmp_path)
    with pytest.raises(release.ReleaseError, match="status 3 of"):
        release._run(["sh", "-c", "exit 3"], tmp_path)


def test_an_unknown_image_is_refused() -> None:
    with pytest.raises(release.ReleaseError, match="no image is called engine"):
        release.images("", ["engine"])
