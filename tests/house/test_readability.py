"""How the code reads, in numbers that only ever go down."""

import ast
import re

import pytest

from tests.house.readability import (
    FLOORS,
    ROOT,
    Figures,
    complexity,
    figures_of,
    homonyms,
    source_files,
    total,
    vague_names,
)

MOST_COLUMNS = 100
MOST_LONG_LINES = 0
MOST_TOKENS_A_LINE = 7.5
MOST_TOKENS_A_LINE_OF_A_FILE = 9.0
MOST_COMPREHENSIONS = 21
MOST_CONDITIONAL_EXPRESSIONS = 10
"""Both per 1,000 lines of code."""
FEWEST_COMMENTS = 23.7
"""Per 1,000 lines of code and comments."""
MOST_TOKENS = 749_500
MOST_COMPLEX_FUNCTIONS = 0
MOST_VAGUE_NAMES = 19
VAGUE_IN_TESTS = {"found", "given", "one", "told"}
"""Names that tests do not use either."""
MOST_HOMONYMS = 5
MOST_PACKED_ASSIGNMENTS = 0
MOST_PACKED_FILES = 4
"""Files with more tokens a line than a file may have."""


@pytest.fixture(scope="module")
def by_file() -> dict[str, Figures]:
    files = source_files(*(ROOT / floor for floor in FLOORS))
    return {str(path.relative_to(ROOT)): figures_of(path.read_text()) for path in files}


@pytest.fixture(scope="module")
def whole(by_file: dict[str, Figures]) -> Figures:
    return total(list(by_file.values()))


def test_a_line_fits_beside_another_file() -> None:
    long_lines = []
    for path in source_files(*(ROOT / place for place in (*FLOORS, "tests", "bench"))):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            # A mark for a tool has to stand in the line that it is about.
            code = re.sub(r"  # (noqa|type: ignore).*", "", line)
            if len(code) > MOST_COLUMNS:
                long_lines.append(f"{path.relative_to(ROOT)}:{number}")
    assert len(long_lines) <= MOST_LONG_LINES, long_lines


def test_a_line_holds_few_tokens(whole: Figures) -> None:
    assert whole.tokens_a_line <= MOST_TOKENS_A_LINE


def test_no_file_is_packed(by_file: dict[str, Figures]) -> None:
    packed = {
        name
        for name, figures in by_file.items()
        if figures.tokens_a_line > MOST_TOKENS_A_LINE_OF_A_FILE
    }
    assert len(packed) <= MOST_PACKED_FILES, packed


def test_the_code_does_not_grow_unnoticed(whole: Figures) -> None:
    assert whole.tokens <= MOST_TOKENS


def test_a_loop_is_written_as_a_loop(whole: Figures) -> None:
    count = whole.per_thousand_lines(whole.comprehensions)
    assert count <= MOST_COMPREHENSIONS


def test_a_choice_is_written_as_a_choice(whole: Figures) -> None:
    count = whole.per_thousand_lines(whole.conditional_expressions)
    assert count <= MOST_CONDITIONAL_EXPRESSIONS


def test_reasons_stay_beside_the_code(whole: Figures) -> None:
    lines = whole.code_lines + whole.comment_lines
    assert 1000 * whole.comment_lines / lines >= FEWEST_COMMENTS


def test_no_function_is_complex(whole: Figures) -> None:
    assert len(whole.complex_functions) <= MOST_COMPLEX_FUNCTIONS


def test_names_say_what_they_hold(whole: Figures) -> None:
    assert len(whole.vague_names) <= MOST_VAGUE_NAMES


def test_names_in_tests_say_what_they_hold() -> None:
    vague = []
    for path in source_files(*(ROOT / place for place in ("tests", "bench", "deploy"))):
        for line, name in vague_names(ast.parse(path.read_text())):
            if name.strip("_") in VAGUE_IN_TESTS:
                vague.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert vague == []


def test_a_type_has_a_name_to_itself() -> None:
    # The client is part of another program, and calls the same things by the same words.
    client = ROOT / "orchestrator" / "client"
    files = source_files(*(ROOT / floor for floor in FLOORS))
    sources = (path.read_text() for path in files if client not in path.parents)
    repeated = homonyms(sources)
    assert len(repeated) <= MOST_HOMONYMS, repeated


def test_a_type_that_is_defined_twice_is_a_homonym() -> None:
    sources = ["class Row: ...", "class Row: ...\nclass Meta: ...", "class Meta: ..."]
    assert homonyms(sources) == {"Row"}


def test_an_assignment_has_a_line_to_itself(whole: Figures) -> None:
    assert len(whole.tuple_assignments) <= MOST_PACKED_ASSIGNMENTS


def test_each_branch_counts() -> None:
    source = """
def f(items):
    for item in items:
        if item and item.ready or item.late:
            return [part for part in item if part]
    return None if items else 0
"""
    [function] = ast.parse(source).body
    # Itself, the loop, the condition, `and`, `or`, the comprehension, its condition,
    # and the conditional expression.
    assert complexity(function) == 8


def test_vague_names_are_found_but_in_a_short_comprehension() -> None:
    source = "found = [one for one in [1]]\ndef _told(kept):\n    return kept\n"
    names = [name for _, name in figures_of(source).vague_names]
    assert names == ["found", "_told", "kept"]
