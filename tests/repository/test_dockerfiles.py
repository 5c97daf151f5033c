"""docs/operate/air-gap.md: what the images install is in a lock with hashes, and the server's have the CPU kernels, for any processor."""

import re
from pathlib import Path

import pytest

from tests.cluster.images import COMPLETE_SERVER, IMAGES
from tests.repository.names import ROOT

DOCKERFILES = sorted(ROOT.glob("Dockerfile.*"))
NATIVE = ROOT / "server" / "native"


def commands(dockerfile: Path) -> list[str]:
    """Each command of its RUN steps."""
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    steps = re.findall(r"^RUN (.*)$", text, re.MULTILINE)
    return [command.strip() for step in steps for command in step.split("&&")]


def stages(dockerfile: Path) -> dict[str, str]:
    """The text of each stage by its name; its first line names the stage or the image that it begins with."""
    parts = re.split(r"^FROM ", dockerfile.read_text(), flags=re.MULTILINE)[1:]
    return {part.splitlines()[0].split(" AS ")[1]: part for part in parts}


def ancestry(name: str, found: dict[str, str]) -> set[str]:
    """The stages that `name` is made of or copies from."""
    above = {found[name].split()[0], *re.findall(r"COPY --from=(\S+)", found[name])} & set(found)
    return {name}.union(*(ancestry(one, found) for one in above))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_whatever_is_installed_has_its_hash_in_a_lock(dockerfile: Path) -> None:
    installs = [command for command in commands(dockerfile) if "pip install" in command]
    assert installs
    for command in installs:
        assert "--require-hashes -r requirements/" in command or "--no-deps /wheels/" in command, command


def test_the_kernels_are_built_with_the_locked_setuptools() -> None:
    [build] = [one for one in commands(ROOT / "Dockerfile.server") if "uv build" in one and "native" in one]
    assert "--no-build-isolation" in build
    assert "--no-build-isolation" in (ROOT / "tests" / "bootstrap.sh").read_text()


def test_the_kernels_are_for_the_processors_that_are_named_not_for_the_builders() -> None:
    for path in (NATIVE / "setup.py", ROOT / "Dockerfile.server"):
        assert not re.search(r"-m(arch|tune)=native", path.read_text())


@pytest.mark.parametrize("target", ["server", "no-torch"])
def test_of_the_compiler_only_the_wheel_is_in_the_image(target: str) -> None:
    found = stages(ROOT / "Dockerfile.server")
    takers = {name for name in ancestry(target, found) if "--from=kernels" in found[name]}
    assert len(takers) == 1
    assert re.findall(r"COPY --from=kernels (.*)", found[takers.pop()]) == ["/wheels /wheels"]
    assert [name for name, text in found.items() if text.startswith("${BASE_COMPILER}")] == ["kernels"]
    assert not [name for name, text in found.items() if text.startswith("kernels ")]
    assert re.findall(r"COPY --from=(\S+) (.*)", found[target])[0][1] == "/opt/venv /opt/venv"


def test_an_image_is_built_anew_when_the_kernels_change() -> None:
    found = stages(ROOT / "Dockerfile.server")
    for image in (*IMAGES, COMPLETE_SERVER):
        compiled = image.source in ("", "server") and image.part.startswith(("server", "simulator"))
        needs = compiled and "kernels" in ancestry(image.target or "server", found)
        assert image.compiles == needs == ("native.txt" in image.locks), image.part


def test_the_builder_is_given_what_the_dockerfiles_copy() -> None:
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line[:1] == "!"
    }
    assert {f"server/native/{name}" for name in ("setup.py", "pyproject.toml", "kernels", "src")} <= allowed
    assert "**/*.so" in (ROOT / ".dockerignore").read_text().split(), "one compiled here is not the image's"
