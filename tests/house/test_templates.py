"""A change of a template can be read in a diff: its lines are short. The formatters
that `make lint` calls keep indentation, but break no line.
"""

from tests.house.commands import ROOT

LONGEST = 140
AVERAGE = 60
"""Characters of a line with its indentation."""
LONGEST_OF_STATIC = 100
LINES = {
    f"{path.relative_to(ROOT)}:{number}": line
    for path in sorted((ROOT / "templates").rglob("*.html"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
}


def test_no_line_of_a_template_is_longer_than_140_characters() -> None:
    assert [place for place, line in LINES.items() if len(line) > LONGEST] == []


def test_lines_of_templates_are_short_on_average() -> None:
    assert sum(map(len, LINES.values())) / len(LINES) < AVERAGE


def test_no_line_of_a_style_sheet_or_script_is_longer_than_100_characters() -> None:
    files = [*(ROOT / "static/css").glob("*.css"), *(ROOT / "static/js").glob("*.js")]
    assert files
    assert [
        f"{path.name}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > LONGEST_OF_STATIC
    ] == []
