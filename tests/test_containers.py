"""The recipes of container images: built for real by buildah, on a base image that needs no registry of images.

``PALAESTRAI_MOSAIK_TEST_CONTAINERS`` names the folder of ``tests/services/containers.sh up FOLDER``. No package registry
has Apptainer, so its recipe is read here, and its sections run in a container of the same base image.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "containers" / "apptainer.def"
VARIABLE = "PALAESTRAI_MOSAIK_TEST_CONTAINERS"
FOLDER = os.environ.get(VARIABLE, "")
BASE = "localhost/python"
#: how pip reaches the registry from here, if there is anything special about it
_PIP = ("/etc/pip.conf", "/etc/ssl/certs", os.environ.get("PIP_FIND_LINKS", ""))

needs_builder = pytest.mark.skipif(
    not FOLDER or shutil.which("buildah") is None,
    reason=f"no container builder: {VARIABLE} names no folder (tests/services/containers.sh up FOLDER prints one)",
)


def buildah(*arguments: str) -> str:
    """Return what a command of buildah prints."""
    at = ("--root", f"{FOLDER}/images", "--runroot", f"{FOLDER}/run", "--storage-driver", "vfs")
    done = subprocess.run(["buildah", *at, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip()


def volumes() -> list[str]:
    found = [f"--volume={path}:{path}:ro" for path in _PIP if path and Path(path).exists()]
    return ["--isolation=chroot", *found]


def run(container: str, *command: str, folder: Path | None = None) -> str:
    extra = [] if folder is None else [f"--volume={folder}:/work", "--workingdir=/work", "--user=65534:65534"]
    passed = [f"--env={name}={os.environ[name]}" for name in os.environ if name.startswith("PIP_")]
    return buildah("run", *volumes(), *passed, *extra, container, "--", *command)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A folder that anybody may write to, with a run document."""
    shutil.copy(ROOT / "scenarios" / "dummy.yml", tmp_path)
    tmp_path.chmod(0o777)
    return tmp_path


def check_runs(container: str, folder: Path) -> None:
    """A user who is nobody in the image executes a document there, into a store of the folder."""
    output = run(container, "palaestrai-mosaik", "start", "dummy.yml", "--store", "results", folder=folder)
    assert "finished" in output
    assert "finished" in run(container, "palaestrai-mosaik", "list", "--store", "results", folder=folder)


@needs_builder
def test_the_image_of_the_dockerfile_runs_a_document(study: Path) -> None:
    settings = (f"--build-arg=BASE={BASE}", "--build-arg=EXTRAS=postgresql")
    buildah(
        "bud", *volumes(), *settings, "--quiet", "--file=containers/Dockerfile", "--tag=localhost/study", "."
    )
    container = buildah("from", "localhost/study")
    try:
        check_runs(container, study)
        assert "usage: palaestrai-mosaik" in run(container, "palaestrai-mosaik", "--help")
        assert run(container, "sh", "-c", "ls -A /src 2> /dev/null; true") == "", (
            "the sources are no part of the image"
        )
    finally:
        buildah("rm", container)
        buildah("rmi", "localhost/study")


def sections() -> dict[str, str]:
    """Return the header and the sections of Apptainer's recipe (Apptainer's user guide, "Definition files")."""
    header, *rest = re.split(r"^%(\w+).*\n", RECIPE.read_text(encoding="utf-8"), flags=re.M)
    return {"header": header, **dict(zip(rest[::2], map(str.strip, rest[1::2]), strict=True))}


def test_the_recipe_of_apptainer_is_complete() -> None:
    found = sections()
    assert set(found) == {"header", "files", "post", "environment", "runscript", "test"}
    assert re.findall(r"^(\w+): (\S+)$", found["header"], re.M) == [
        ("Bootstrap", "docker"),
        ("From", "python:3.12-slim-bookworm"),
    ]
    docker = (ROOT / "containers" / "Dockerfile").read_text(encoding="utf-8")
    assert "python:3.12-slim-bookworm" in docker, "both recipes start from the same image"
    sources = [line.split()[0] for line in found["files"].splitlines()]
    assert all((ROOT / source).exists() for source in sources)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", docker, re.M)
    assert sorted(" ".join(copied).split()) == sorted(sources), "both recipes copy the same files"


@needs_builder
def test_the_sections_of_the_recipe_of_apptainer_make_an_image_that_runs(study: Path) -> None:
    found = sections()
    container = buildah("from", BASE)
    try:
        for line in found["files"].splitlines():
            source, target = line.split()
            buildah("copy", container, source, target)
        run(container, "env", "EXTRAS=postgresql", "sh", "-ec", found["post"])
        run(container, "sh", "-ec", found["test"])
        script = f"{found['environment']}\n{found['runscript']}"
        output = run(
            container, "env", "HOME=/tmp", "sh", "-ec", script, "run",
            "palaestrai-mosaik", "start", "dummy.yml", "--store", "results", folder=study,
        )  # fmt: skip
        assert "finished" in output
        assert run(container, "sh", "-c", "ls -A /src 2> /dev/null; true") == ""
    finally:
        buildah("rm", container)
