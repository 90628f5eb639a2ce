"""The documentation names nothing that does not exist, and leaves no setting out."""

import re

from tests.house.commands import ROOT

PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]


def test_every_page_that_the_documentation_names_exists() -> None:
    missing = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []


def test_every_test_that_the_documentation_names_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(tests/[\w/.]+)", page.read_text())}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_variable_of_the_settings_is_documented() -> None:
    told = (ROOT / "docs" / "configuration.md").read_text()
    code = (ROOT / "orchestrator" / "settings.py").read_text() + (ROOT / "orchestrator" / "environment.py").read_text()
    read = set(re.findall(r'"(COUNTERSIGN_[A-Z_]+[A-Z]|DATABASE_URL)"', code))
    read |= {f"COUNTERSIGN_{name}" for name in re.findall(r"^        ([A-Z_]+)=env\.", code, re.MULTILINE)}
    assert {name for name in read if not re.search(rf"`{name}\b", told)} == set()
