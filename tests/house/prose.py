"""The prose of the code: its docstrings and comments.

`python tests/house/prose.py [FILE OR FOLDER ...]` prints those with words that the
glossary rules out in prose.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.house.readability import FLOORS, ROOT, source_files

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
HEADING = "## What prose does not say"


def banned_phrases(glossary: str) -> tuple[list[str], list[str]]:
    """Return the phrases that stand nowhere in prose, and those that begin none.

    The glossary writes the latter with an ellipsis: `What …`.
    """
    section = glossary.partition(HEADING)[2].partition("\n## ")[0]
    phrases = []
    for row in section.splitlines():
        if row.startswith("|"):
            phrases += re.findall(r"`([^`]+)`", row.split("|")[1])
    anywhere = [phrase for phrase in phrases if not phrase.endswith(" …")]
    openings = [phrase[:-2] for phrase in phrases if phrase.endswith(" …")]
    return anywhere, openings


def prose_of(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each docstring and comment: its line, its text, and whether it is a
    docstring.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text, True
    yield from _comments(source)


def _comments(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield comments; those in consecutive lines are one text."""
    first = 0
    last = 0
    words: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if words and line != last + 1:
            yield first, " ".join(words), False
            words = []
        if not words:
            first = line
        words.append(token.string.lstrip("# "))
        last = line
    if words:
        yield first, " ".join(words), False


def faults(source: str, glossary: str) -> Iterator[tuple[int, str]]:
    """Yield (line, phrase) for each use of a phrase that the glossary rules out."""
    anywhere, openings = banned_phrases(glossary)
    banned = re.compile(rf"\b({'|'.join(anywhere)})\b", re.IGNORECASE)
    opening = re.compile(rf"({'|'.join(openings)})\b")
    for line, text, is_docstring in prose_of(source):
        # Code in backticks is quoted, not said.
        spoken = " ".join(re.sub(r"`[^`]*`", "``", text).split())
        for match in banned.finditer(spoken):
            yield line, match.group(1).lower()
        match = opening.match(spoken)
        if is_docstring and match:
            yield line, f"{match.group(1)} …"


def main(words: list[str]) -> None:
    roots = [Path(word) for word in words] or [ROOT / floor for floor in FLOORS]
    glossary = (ROOT / "docs/glossary.md").read_text()
    by_phrase: Counter[str] = Counter()
    for path in source_files(*roots):
        for line, phrase in faults(path.read_text(), glossary):
            by_phrase[phrase] += 1
            print(f"{path}:{line}: {phrase}")
    print(by_phrase.total(), dict(by_phrase))


if __name__ == "__main__":
    main(sys.argv[1:])
