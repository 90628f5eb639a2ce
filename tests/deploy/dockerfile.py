"""The steps of deploy/Dockerfile, followed in folders of a test where no image can be
built.
"""

import os
import re
import shlex
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.house.commands import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
PLACES = {
    "/opt/countersign": "venv",
    "/srv/countersign/static": "static",
    "/tmp/collected": "collected",
    "/data": "data",
    "/app": "app",
}
"""Folder in the image -> the folder of the test that stands for it."""


@dataclass(frozen=True)
class Instruction:
    """A line of a Dockerfile: the number of its stage from 0, its word, and the rest."""

    stage: int
    word: str
    rest: str


def instructions() -> list[Instruction]:
    """Return the instructions in their order, without comments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    stage = -1
    result = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stage += 1
        result.append(Instruction(stage, word, rest.strip()))
    return result


def in_test(text: str, folder: Path) -> str:
    """Return a text with the folders of the image replaced by those of the test."""
    for inside, outside in PLACES.items():
        text = re.sub(
            rf"(?<![\w.-]){re.escape(inside)}(?![\w-])", str(folder / outside), text
        )
    return text


def environment_of_image(folder: Path) -> dict[str, str]:
    """Return the variables that the last stage sets."""
    variables: dict[str, str] = {}
    for step in instructions():
        if step.word == "ENV":
            words = shlex.split(in_test(step.rest, folder))
            variables |= dict(word.split("=", 1) for word in words)
    variables["PATH"] = variables["PATH"].replace("$PATH", os.environ["PATH"])
    return variables


def context(folder: Path) -> Path:
    """Copy what .dockerignore admits into a folder, and return it."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    admitted = [line[1:] for line in lines if line.startswith("!")]
    target = folder / "context"
    for name in admitted:
        source = ROOT / name
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place)
    return target


def build(folder: Path) -> None:
    """Follow the stage that builds: its folders lie in `folder` afterwards. What the
    packages depend on is borrowed from this environment, and nothing is downloaded.
    """
    source = context(folder)
    work = folder / "build"
    work.mkdir()
    for step in instructions():
        if step.stage > 0:
            break
        if step.word == "COPY":
            _copy(step.rest, source, work, folder)
        elif step.word == "RUN":
            _run(in_test(step.rest, folder), work)
            if " -m venv " in step.rest:
                _lend_packages(folder / "venv")


def _copy(rest: str, source: Path, work: Path, folder: Path) -> None:
    *names, target = rest.split()
    place = work / in_test(target, folder)
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, place)
        else:
            # A target that ends in a slash, or is a dot, is a folder.
            shutil.copy(source / name, place)


def _run(command: str, work: Path) -> None:
    programs = str(Path(sys.executable).parent)
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(work),
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(
        ["sh", "-euc", command],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def _lend_packages(environment: Path) -> None:
    """Let a new environment see the packages of ours, but not this project."""
    lent = environment / "lent"
    lent.mkdir()
    for folder in map(Path, site.getsitepackages()):
        for entry in folder.iterdir():
            if "countersign" not in entry.name and entry.suffix != ".pth":
                (lent / entry.name).symlink_to(entry)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n")
