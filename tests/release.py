"""What a release consists of: `make release-check`, `release-wheels`, `release-chart` and `release-images`.

The release workflow runs these four and nothing else of its own, so a release can be made by hand, too. This file needs
Python alone, as it runs before `.venv` is made. No registry is named here: with `--registry HOST/PATH` (or REGISTRY in the
environment) charts and images are pushed there, and without they are built and stay on this machine.

Versions are those of the checkout. What is made lies in dist/.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
TOOLS = ROOT / "build" / "release-tools"
CHART = ROOT / "charts" / "llmendpoint"
CHART_BUILD = ROOT / "build" / "release-chart"
PROJECTS = (".", "fit", "verdicts", "operator", "probe", "gateway", "server", "server/native", "cli", "batch")
WHEELS = ("fit", "verdicts", "cli")
"""The CLI, and what it shares with the operator. The other packages are released as images."""
PLATFORMS = "linux/amd64,linux/arm64"
_OWN_IMAGE = re.compile(r"^(\s+repository: )(llmendpoint-[a-z]+)$", re.MULTILINE)

EXAMPLES = """examples:
  python3 -m tests.release check v0.1.0
  python3 -m tests.release wheels
  python3 -m tests.release chart --registry registry.example.com/llm
  python3 -m tests.release images operator gateway --registry registry.example.com/llm"""


class ReleaseError(Exception):
    """What stands in the way, and what to do."""


@dataclass(frozen=True)
class Image:
    """One image: its name's part, its Dockerfile and the target in it (None: the last one)."""

    part: str
    dockerfile: str
    target: str | None = None


IMAGES = (
    Image("operator", "Dockerfile.operator"),
    Image("gateway", "Dockerfile.gateway", "official"),
    Image("batch", "Dockerfile.batch"),
    Image("server", "Dockerfile.server", "server"),
    Image("simulator", "Dockerfile.server", "simulator"),
)


def check(tag: str, root: Path = ROOT) -> str:
    """The version of the checkout. Raises ReleaseError where `tag`, a version or the changelog says something else."""
    versions = dict(_versions(root))
    version = versions["pyproject.toml"]
    other = [f"{where} says {found}" for where, found in versions.items() if found != version]
    if other:
        raise ReleaseError(
            f"pyproject.toml says {version}, but {'; '.join(other)}: write one version everywhere"
        )
    if tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag}, and the checkout is version {version}: its tag is v{version}")
    if f"\n## [{version}]" not in (root / "CHANGELOG.md").read_text():
        raise ReleaseError(
            f"CHANGELOG.md has no section [{version}]: give [Unreleased] that name and its date"
        )
    return version


def _versions(root: Path) -> Iterator[tuple[str, str]]:
    for project in PROJECTS:
        path = Path(project, "pyproject.toml")
        yield str(path), tomllib.loads((root / path).read_text())["project"]["version"]
    chart = (root / CHART.relative_to(ROOT) / "Chart.yaml").read_text()
    for key, found in re.findall(r"^(version|appVersion): (\S+)$", chart, re.MULTILINE):
        yield f"Chart.yaml ({key})", found


def version_of(root: Path = ROOT) -> str:
    """The version of the workspace root."""
    return next(_versions(root))[1]


def wheels() -> None:
    """The CLI's wheels, and the SBOM of what an installation of them takes, from the lock."""
    DIST.mkdir(exist_ok=True)
    tools = _tools()
    for project in WHEELS:
        _run([tools / "uv", "build", "--wheel", "--out-dir", DIST, ROOT / project], ROOT)
    sbom = DIST / f"llmendpoint_cli-{version_of()}.cdx.json"
    locked: list[str | Path] = [
        ROOT / "requirements" / "cli.txt",
        "--pyproject",
        ROOT / "cli" / "pyproject.toml",
    ]
    _run([tools / "cyclonedx-py", "requirements", *locked, "--output-reproducible", "-o", sbom], ROOT)


def _tools() -> Path:
    """The folder of uv and cyclonedx-py, installed from their locks into a virtual environment of their own."""
    programs = TOOLS / "bin"
    if not (programs / "cyclonedx-py").exists():
        _run([sys.executable, "-m", "venv", TOOLS], ROOT)
        locks = ["-r", "requirements/bootstrap.txt", "-r", "requirements/release.txt"]
        install: list[str | Path] = [
            programs / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            *locks,
        ]
        _run([sys.executable, "tests/downloads.py", *install], ROOT)
    return programs


def chart(registry: str) -> None:
    """The chart as a package; with a registry its images are those of that registry, and it is pushed to REGISTRY/charts."""
    shutil.rmtree(CHART_BUILD, ignore_errors=True)
    folder = CHART_BUILD / CHART.name
    shutil.copytree(CHART, folder)
    values = folder / "values.yaml"
    values.write_text(with_images_of(registry, values.read_text()))
    DIST.mkdir(exist_ok=True)
    _run(["helm", "package", folder, "--destination", DIST], ROOT)
    if registry:
        _run(["helm", "push", DIST / f"{CHART.name}-{version_of()}.tgz", f"oci://{registry}/charts"], ROOT)


def with_images_of(registry: str, values: str) -> str:
    """The chart's values.yaml with our images taken from `registry`."""
    return _OWN_IMAGE.sub(rf"\g<1>{registry}/\2", values) if registry else values


def images(registry: str, parts: Sequence[str]) -> None:
    """The images of `parts` for both architectures; with a registry pushed, with an SBOM and provenance by BuildKit."""
    version, revision = version_of(), _git("rev-parse", "HEAD")
    unknown = set(parts) - {image.part for image in IMAGES}
    if unknown:
        raise ReleaseError(f"no image is called {', '.join(sorted(unknown))}")
    for image in IMAGES:
        if image.part in parts:
            _run(build_command(image, registry, version, revision), ROOT)


def build_command(image: Image, registry: str, version: str, revision: str) -> list[str]:
    """`docker buildx` for one image. Without a registry nothing leaves the builder's cache."""
    name = f"llmendpoint-{image.part}:{version}"
    labels = {"version": version, "revision": revision, "licenses": "Apache-2.0"}
    command = ["docker", "buildx", "build", "--platform", PLATFORMS, "--file", image.dockerfile]
    command += ["--target", image.target] if image.target else []
    command += [f"--label=org.opencontainers.image.{key}={value}" for key, value in labels.items()]
    if registry:
        command += ["--sbom=true", "--provenance=mode=max", "--tag", f"{registry}/{name}", "--push"]
    else:
        command += ["--output", "type=cacheonly"]
    return [*command, "."]


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _environment() -> Mapping[str, str]:
    """With the time of the commit, so that two builds of it have the same times in them."""
    return {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct"), **os.environ}


def _run(command: Sequence[str | Path], cwd: Path) -> None:
    shown = " ".join(map(str, command))
    print(f"+ {shown}", flush=True)
    try:
        subprocess.run([str(part) for part in command], cwd=cwd, check=True, env=_environment())
    except FileNotFoundError:
        raise ReleaseError(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise ReleaseError(f"status {error.returncode} of: {shown}") from None


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.release",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="whether a tag is that of the checkout").add_argument("tag")
    commands.add_parser("wheels", help="the CLI's wheels and their SBOM, into dist/")
    for command, text in (("chart", "the chart, into dist/"), ("images", "the images for amd64 and arm64")):
        added = commands.add_parser(command, help=text)
        added.add_argument("--registry", default=os.environ.get("REGISTRY", ""), metavar="HOST/PATH")
    parts = [image.part for image in IMAGES]
    commands.choices["images"].add_argument("parts", nargs="*", default=parts, metavar="|".join(parts))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 1 with what stands in the way."""
    arguments = _arguments(argv)
    try:
        if arguments.command == "check":
            print(f"version {check(arguments.tag)}")
        elif arguments.command == "wheels":
            wheels()
        elif arguments.command == "chart":
            chart(arguments.registry.rstrip("/"))
        else:
            images(arguments.registry.rstrip("/"), arguments.parts)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
