"""What comes from others is named in NOTICE with its licence, and the texts of the
licences go with the wheel.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.commands import ROOT

OWN = {"css", "img", "js"}
"""Folders of `static` whose files are ours. Whatever lies elsewhere in it comes from
somebody else.
"""
FOREIGN = re.compile(
    r"copyright|@licen[cs]e|\blicensed\b|sourceMappingURL|\(c\)", re.IGNORECASE
)
ASKS_SOMETHING = re.compile(r"GPL|MPL|EPL|CDDL|Mozilla|GNU")
NOTICE = (ROOT / "NOTICE").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def entries() -> dict[str, str]:
    """Each name that begins an entry of NOTICE, and the entry."""
    matches = re.findall(r"^(\S.*)\n((?: {4}.*\n?)+)", NOTICE, re.MULTILINE)
    return {name.strip(): text for names, text in matches for name in names.split(",")}


def foreign_files() -> set[str]:
    """The files under `static` that are not ours."""
    files = [
        path.relative_to(ROOT)
        for path in (ROOT / "static").rglob("*")
        if path.is_file()
    ]
    return {str(path) for path in files if path.parts[1] not in OWN}


def test_each_file_that_comes_from_others_is_named_with_its_licence() -> None:
    assert foreign_files()
    assert {
        name for name in foreign_files() if "Licence: " not in entries().get(name, "")
    } == set()


def test_no_file_is_named_that_is_not_there() -> None:
    assert {name for name in entries() if name.startswith("static/")} == foreign_files()


def test_no_file_of_ours_says_that_it_is_somebody_elses() -> None:
    files = [
        path
        for name in sorted(OWN)
        for path in (ROOT / "static" / name).rglob("*")
        if path.is_file()
    ]
    assert files
    assert [
        path.name
        for path in files
        if ".min." in path.name or FOREIGN.search(path.read_text())
    ] == []


def test_the_licence_of_the_project_is_that_of_all_that_it_carries() -> None:
    carried = {
        re.findall(r"Licence: (\S+)", text)[0]
        for name, text in entries().items()
        if name.startswith("static/")
    }
    assert set(PROJECT["license"].split(" AND ")) == {"Apache-2.0", *carried}
    named = set(re.findall(r"text in ([\w./]+\w)", NOTICE))
    assert {"LICENSE", "NOTICE", *named} == set(PROJECT["license-files"])


def _installed(name: str, extras: tuple[str, ...], met: set[str]) -> Iterator[str]:
    """The packages that come with this one, itself included."""
    try:
        wanted = distribution(name).requires or []
    except PackageNotFoundError:
        return
    met.add(name)
    yield name
    for requirement in map(Requirement, wanted):
        below = canonicalize_name(requirement.name)
        asked = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": e}) for e in (*extras, "")
        )
        if asked and (below not in met or requirement.extras):
            yield from _installed(below, tuple(requirement.extras), met)


def test_each_package_whose_licence_asks_something_of_who_passes_it_on_is_named() -> (
    None
):
    asking = set()
    for name in _installed("django-countersign", ("postgres", "redis"), set()):
        facts = distribution(name).metadata
        licence = facts.get("License-Expression") or " ".join(
            [
                (facts.get("License") or "")[:100],
                *(c for c in facts.get_all("Classifier", []) if "License ::" in c),
            ]
        )
        if ASKS_SOMETHING.search(licence):
            asking.add(name)
    assert {"psycopg", "psycopg-binary"} <= asking
    assert asking == {name for name in entries() if not name.startswith("static/")}
