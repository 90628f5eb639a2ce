"""A release is built from its tag alone, twice and alike, and names what it needs."""

import json
import re
import shutil
import subprocess
import sys
import venv
from hashlib import sha256
from importlib.metadata import requires, version
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.house.commands import ROOT, run

PROGRAM = ROOT / "deploy" / "release.py"
TAG = "v0.1.0"
FOLDERS = ("approvals", "checkpoints", "orchestrator", "static", "templates")
FILES = (
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "NOTICE",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
)


def _git(folder: Path, *words: str) -> None:
    person = ("-c", "user.name=Olive", "-c", "user.email=olive@example.org")
    done = run("git", "-C", folder, *person, *words)
    assert done.returncode == 0, done.stderr


def _tagged(folder: Path, tag: str = TAG) -> None:
    _git(folder, "init", "--quiet")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "a release")
    _git(folder, "tag", tag)


def _released(
    folder: Path, to: Path, tag: str = TAG
) -> "subprocess.CompletedProcess[str]":
    return run(sys.executable, PROGRAM, tag, "--repository", folder, "--to", to)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what is released of this project, tagged, with a file that is not in the
    tag.
    """
    folder = tmp_path_factory.mktemp("repository")
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    _tagged(folder)
    (folder / "orchestrator" / "left_over.py").write_text("")
    return folder


@pytest.fixture(scope="module")
def release(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("release")
    done = _released(repository, to)
    assert done.returncode == 0, done.stderr
    return to


def _file(release: Path, suffix: str) -> Path:
    (file,) = release.glob(f"*{suffix}")
    return file


def test_a_second_build_gives_the_same_bytes(
    repository: Path, release: Path, tmp_path: Path
) -> None:
    assert _released(repository, tmp_path).returncode == 0
    names = sorted(file.name for file in release.iterdir())
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (release / name).read_bytes(), name


def test_the_wheel_has_templates_static_files_types_and_licences_and_no_tests(
    release: Path,
) -> None:
    with ZipFile(_file(release, ".whl")) as wheel:
        names = wheel.namelist()
    assert "orchestrator/templates/orchestrator/run.html" in names
    assert "orchestrator/static/countersign/css/console.css" in names
    for package in ("orchestrator", "checkpoints", "approvals"):
        assert f"{package}/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "test" in Path(name).parts[0]]
    assert "orchestrator/left_over.py" not in names


def test_the_sums_are_those_of_the_files(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    named = dict(reversed(line.split("  ")) for line in lines)  # type: ignore[misc]
    others = {file.name for file in release.iterdir()} - {"SHA256SUMS"}
    assert named.keys() == others
    for name, digest in named.items():
        assert sha256((release / name).read_bytes()).hexdigest() == digest


def test_the_bill_names_what_the_wheel_needs_and_nothing_of_this_machine(
    release: Path,
) -> None:
    text = _file(release, ".cdx.json").read_text()
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "django-countersign"
    versions = {part["name"]: part["version"] for part in bill["components"]}
    for requirement in map(Requirement, requires("django-countersign") or []):
        if requirement.marker is None:
            assert versions[requirement.name] == version(requirement.name)
    # By an extra of what is needed, and what only tests need.
    assert "pyopenssl" in versions
    assert not versions.keys() & {"pytest", "hatchling", "playwright"}
    addresses = set(re.findall(r"https?://[^\"]*", text))
    assert addresses == {"http://cyclonedx.org/schema/bom-1.6.schema.json"}
    for path in (str(ROOT), str(Path.home()), "file:", sys.prefix):
        assert path not in text


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "small"\nversion = "0.1.0"\n'
        "[tool.hatch.build.targets.wheel]\nonly-include = ['small.py']\n"
    )
    (folder / "small.py").write_text("")
    (folder / "CHANGELOG.md").write_text("# Changes\n\n## [0.1.0] - 2027-01-15\n")
    return folder


@pytest.mark.parametrize(
    ("change", "tag", "reason"),
    [
        ("# Changes\n\n## 0.2.0\n", TAG, "CHANGELOG.md has no heading for 0.1.0"),
        ("# Changes\n\n## 0.1.0\n", "v0.2.0", "the tag v0.2.0 holds version 0.1.0"),
    ],
)
def test_a_tag_that_is_not_its_version_is_refused(
    project: Path, tmp_path: Path, change: str, tag: str, reason: str
) -> None:
    (project / "CHANGELOG.md").write_text(change)
    _tagged(project, tag)
    done = _released(project, tmp_path / "dist", tag)
    assert done.returncode == 1
    assert reason in done.stderr
    assert not (tmp_path / "dist").exists()


def test_what_is_no_tag_is_refused(project: Path, tmp_path: Path) -> None:
    _tagged(project)
    done = _released(project, tmp_path / "dist", "v9.9.9")
    assert (done.returncode, done.stderr) == (
        1,
        "Not released: there is no tag v9.9.9.\n",
    )


def test_builds_that_differ_are_refused(project: Path, tmp_path: Path) -> None:
    hook = "import time\nfrom hatchling.builders.hooks.plugin.interface import BuildHookInterface\n"
    hook += "class Hook(BuildHookInterface):\n"
    hook += "    def initialize(self, version, build_data):\n"
    hook += "        open('small.py', 'w').write(str(time.time_ns()))\n"
    (project / "hatch_build.py").write_text(hook)
    with (project / "pyproject.toml").open("a") as file:
        file.write("[tool.hatch.build.hooks.custom]\n")
    _tagged(project)
    done = _released(project, tmp_path / "dist")
    assert done.returncode == 1
    assert "differ" in done.stderr


def test_the_wheel_installs_into_an_empty_environment(
    release: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pinned = ("--constraint", ROOT / "constraints.txt")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
    wheel = _file(release, ".whl")
    done = run(python, "-m", "pip", "install", *quiet, *pinned, wheel)
    if "No matching distribution" in done.stderr:
        pytest.skip("no package index here")
    assert done.returncode == 0, done.stderr
    program = (
        "import django; from django.conf import settings;"
        "settings.configure(); import orchestrator, checkpoints, approvals;"
        "print(orchestrator.__file__)"
    )
    done = run(python, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "venv"))
    checked = run(python, "-m", "pip", "check", "--disable-pip-version-check")
    assert checked.returncode == 0, checked.stdout
