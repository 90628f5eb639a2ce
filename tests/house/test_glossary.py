"""The words of docs/glossary.md: those that it rules out are nobody's name in the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("orchestrator", "approvals", "checkpoints", "deploy", "tests", "bench")


def ruled_out() -> list[str]:
    """The words of the last column, of tables that have one."""
    rows = re.findall(
        r"^\|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$",
        (ROOT / "docs/glossary.md").read_text(),
        re.MULTILINE,
    )
    return sorted(
        {word for _, _, never in rows for word in re.findall(r"`(\w+)`", never)}
    )


def identifiers(source: str) -> Iterator[str]:
    """Every name that a module binds, reads or passes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Name(id=name)
                | ast.Attribute(attr=name)
                | ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name, asname=asname):
                yield from (name, asname or name)


def uses(words: list[str]) -> dict[str, set[str]]:
    """Return the files that use one of `words` as an identifier, by word."""
    files: dict[str, set[str]] = {}
    # Few files hold such a word at all, in a text; only those are worth parsing.
    any_word = re.compile(rf"(?<![^\W_])(?:{'|'.join(words)})\b")
    for place in PLACES:
        for path in (ROOT / place).rglob("*.py"):
            source = path.read_text()
            if "migrations" in path.parts or not any_word.search(source):
                continue
            for name in identifiers(source):
                if name.lstrip("_") in words:
                    files.setdefault(name.lstrip("_"), set()).add(
                        str(path.relative_to(ROOT))
                    )
    return files


def test_a_word_that_the_glossary_rules_out_is_no_identifier() -> None:
    assert uses(ruled_out()) == {}


def test_the_search_finds_a_word_that_is_in_use() -> None:
    assert "tests/house/test_glossary.py" in uses(["any_word"])["any_word"]


def test_the_glossary_rules_something_out() -> None:
    assert {"Hold", "Desk", "cover"} <= set(ruled_out())
    assert "Hold" in set(identifiers("class Hold: ...")), (
        "the search finds a class by its name"
    )
