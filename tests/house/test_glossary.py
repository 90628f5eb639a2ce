"""The words of docs/glossary.md: those that it rules out are nobody's name in the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("orchestrator", "approvals", "checkpoints", "tests", "bench")


def ruled_out() -> list[str]:
    """The words of the last column, of tables that have one."""
    rows = re.findall(r"^\|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    return sorted({word for _, _, never in rows for word in re.findall(r"`(\w+)`", never)})


def identifiers(source: str) -> Iterator[str]:
    """Every name that a module binds, reads or passes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name, asname=asname):
                yield from (name, asname or name)


def used() -> dict[str, set[str]]:
    """Identifier -> the files that use it."""
    found: dict[str, set[str]] = {}
    for place in PLACES:
        for path in (ROOT / place).rglob("*.py"):
            if "migrations" not in path.parts:
                for name in identifiers(path.read_text()):
                    found.setdefault(name.lstrip("_"), set()).add(str(path.relative_to(ROOT)))
    return found


def test_a_word_that_the_glossary_rules_out_is_no_identifier() -> None:
    names = used()
    assert {word: sorted(names[word]) for word in ruled_out() if word in names} == {}


def test_the_glossary_rules_something_out() -> None:
    assert {"Hold", "Desk", "cover"} <= set(ruled_out())
    assert "Hold" in set(identifiers("class Hold: ...")), "the search finds a class by its name"
