"""What the docstrings and comments of the product do not say, as the glossary lists it."""

from tests.house.prose import banned_phrases, faults
from tests.house.readability import FLOORS, ROOT, source_files

MOST_BANNED_PHRASES = 3
GLOSSARY = (ROOT / "docs/glossary.md").read_text()


def test_docstrings_and_comments_are_plain_english() -> None:
    in_use = []
    for path in source_files(*(ROOT / floor for floor in FLOORS)):
        for line, phrase in faults(path.read_text(), GLOSSARY):
            in_use.append(f"{path.relative_to(ROOT)}:{line}: {phrase}")
    assert len(in_use) <= MOST_BANNED_PHRASES, in_use


def test_the_glossary_rules_phrases_out_anywhere_and_openings_of_docstrings() -> None:
    anywhere, openings = banned_phrases(GLOSSARY)
    assert {"told", "somebody"} <= set(anywhere)
    assert {"What", "Whether", "Gives"} <= set(openings)


def test_a_phrase_is_found_across_lines_but_not_in_quoted_code() -> None:
    source = '''
def f():
    """Whether a row has a seal of
    its own."""
    # The value of `told`.
    return "somebody"  # What is told.
'''
    sorted_faults = sorted(faults(source, GLOSSARY))
    assert sorted_faults == [(3, "Whether …"), (3, "of its own"), (5, "told")]
