"""Builds a release from a tag: wheel, source archive, list of what the wheel needs, sums.

`python deploy/release.py v0.1.0 --to dist`. Needs the extra `release`. Only the tag
counts: what lies changed in the folder, or was never committed, is in no file.
docs/releasing.md says what to do before and after.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import Distribution, distribution
from io import BytesIO
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5
from zipfile import ZipFile

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.exception import CycloneDxException
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SUMS = "SHA256SUMS"
GIT = shutil.which("git") or "git"


class Refused(Exception):
    """The tag cannot be released; the message says why."""


def main() -> int:
    """Build the release that the arguments name. Returns the code to exit with."""
    parser = argparse.ArgumentParser(description="Build a release from a tag.")
    parser.add_argument("tag", help="as v0.1.0")
    parser.add_argument("--to", type=Path, default=Path("dist"))
    parser.add_argument("--repository", type=Path, default=Path.cwd())
    arguments = parser.parse_args()
    try:
        files = release(arguments.repository, arguments.tag, arguments.to)
    except Refused as error:
        sys.stderr.write(f"Not released: {error}.\n")
        return 1
    for file in files:
        sys.stdout.write(f"{file}\n")
    return 0


def release(repository: Path, tag: str, to: Path) -> list[Path]:
    """Build everything from a tag into a folder, and return the files. Raises `Refused`
    if the tag is not the version that it holds, or if two builds differ.
    """
    made_at = int(
        _git(repository, "log", "-1", "--format=%ct", _commit(repository, tag))
    )
    with tempfile.TemporaryDirectory() as scratch:
        builds = []
        # In two folders, so that no path of either can be in the files.
        for name in ("first", "second"):
            tree = Path(scratch, name, "tree")
            _check_out(repository, tag, tree)
            require_version(tree, tag)
            builds.append(_build(tree, Path(scratch, name, "dist"), made_at))
        require_same(*builds)
        to.mkdir(parents=True, exist_ok=True)
        files = []
        for built in builds[0]:
            file = to / built.name
            file.write_bytes(built.read_bytes())
            files.append(file)
    (wheel,) = (file for file in files if file.suffix == ".whl")
    files.append(_write(to / f"{wheel.stem}.cdx.json", bill_of(wheel, made_at)))
    files.append(_write(to / SUMS, sums_of(files)))
    return files


def require_version(tree: Path, tag: str) -> None:
    """Raise `Refused` unless a tag, the project's version and a heading of the changes
    are the same.
    """
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    version = project["version"]
    if tag != f"v{version}":
        raise Refused(f"the tag {tag} holds version {version}")
    changes = (tree / "CHANGELOG.md").read_text().splitlines()
    # As "## 0.1.0 - 2027-01-15", in brackets or not.
    versions = [line.split()[1].strip("[]") for line in changes if line[:3] == "## "]
    if version not in versions:
        raise Refused(f"CHANGELOG.md has no heading for {version}")


def require_same(first: list[Path], second: list[Path]) -> None:
    """Raise `Refused` unless two builds hold the same files, byte for byte."""
    if [file.name for file in first] != [file.name for file in second]:
        raise Refused("two builds made other files")
    for first_file, second_file in zip(first, second, strict=True):
        if first_file.read_bytes() != second_file.read_bytes():
            raise Refused(f"two builds of {first_file.name} differ")


def bill_of(wheel: Path, made_at: int) -> str:
    """Return the list of what a wheel needs to run, in the format of CycloneDX: each
    package in the version that is installed here, which constraints.txt pins.
    """
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("dist-info/METADATA"))
        metadata = Metadata.from_email(archive.read(name), validate=False)
    root = _component(
        metadata.name,
        str(metadata.version),
        metadata.license_expression or "",
        kind=ComponentType.APPLICATION,
    )
    digest = sha256(wheel.read_bytes()).hexdigest()
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"sha256:{digest}"))
    bom.metadata.timestamp = datetime.fromtimestamp(made_at, UTC)
    bom.metadata.component = root
    _Needed(bom).add_to(root, metadata.requires_dist or [])
    outputter = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return outputter.output_as_string(indent=2) + "\n"


def sums_of(files: list[Path]) -> str:
    """Return the sums of files as `sha256sum --check` reads them."""
    lines = []
    for file in sorted(files):
        lines.append(f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    return "".join(lines)


@dataclass(slots=True)
class _Needed:
    """The packages that are in a list already, and those whose own needs were added
    with some extras.
    """

    bom: Bom
    components: dict[str, Component] = field(default_factory=dict)
    done: set[tuple[str, frozenset[str]]] = field(default_factory=set)

    def add_to(
        self,
        component: Component,
        requirements: Iterable[Requirement],
        extras: frozenset[str] = frozenset(),
    ) -> None:
        """Add what a component with some extras needs, and what that needs in turn."""
        for requirement in requirements:
            if not _applies(requirement, extras):
                continue
            package = distribution(requirement.name)
            name = canonicalize_name(package.name)
            if name not in self.components:
                self.components[name] = _component_of(package)
                self.bom.components.add(self.components[name])
            needed = self.components[name]
            self.bom.register_dependency(component, [needed])
            with_extras = frozenset(requirement.extras)
            if (name, with_extras) not in self.done:
                self.done.add((name, with_extras))
                inner = [Requirement(text) for text in package.requires or []]
                self.add_to(needed, inner, with_extras)


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Return whether a requirement is one here, of a package with these extras."""
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras))


def _component_of(package: Distribution) -> Component:
    facts = package.metadata
    licence = ""
    for name in ("License-Expression", "License"):
        if name in facts:
            licence = licence or facts[name]
    return _component(canonicalize_name(package.name), package.version, licence)


def _component(
    name: str, version: str, licence: str, kind: ComponentType = ComponentType.LIBRARY
) -> Component:
    url = PackageURL("pypi", name=name, version=version)
    component = Component(
        name=name, version=version, type=kind, purl=url, bom_ref=str(url)
    )
    # Some packages have their whole licence in this field; only an expression says which.
    if licence and "\n" not in licence:
        with suppress(CycloneDxException):
            component.licenses.add(LicenseFactory().make_from_string(licence))
    return component


def _check_out(repository: Path, tag: str, tree: Path) -> None:
    tree.mkdir(parents=True)
    archive = subprocess.run(
        [GIT, "-C", repository, "archive", "--format=tar", tag],
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")


def _build(tree: Path, to: Path, made_at: int) -> list[Path]:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", to],
        cwd=tree,
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(made_at)},
    )
    return sorted(to.iterdir())


def _commit(repository: Path, tag: str) -> str:
    """Return the commit of a tag. Raises `Refused` if there is no such tag."""
    known = subprocess.run(
        [
            GIT,
            "-C",
            repository,
            "rev-parse",
            "--verify",
            f"refs/tags/{tag}^{{commit}}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if known.returncode:
        raise Refused(f"there is no tag {tag}")
    return known.stdout.strip()


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(
        [GIT, "-C", repository, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def _write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


if __name__ == "__main__":
    sys.exit(main())
