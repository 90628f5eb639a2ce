"""A page of the documentation as somebody reads it in front of the console: what stands
in *italics* is on the page.
"""

import re
from typing import Any

from tests.house.commands import ROOT

_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_ITALICS = re.compile(r"(?<![*\w])\*(?![*\s])([^*]+?)\*(?![*\w])")


class DocsPage:
    """The words of the console that a page of docs, or one section of it, names. A walk
    has to meet each of them.
    """

    def __init__(self, name: str, section: str = "") -> None:
        text = _CODE.sub("", (ROOT / "docs" / name).read_text())
        if section:
            text = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
        self.name = f"{name}#{section}" if section else name
        self.lines = text.splitlines()
        self.text = " ".join(text.split())
        self.left = {" ".join(words.split()) for words in _ITALICS.findall(text)}
        self.words = set(self.left)

    def word(self, words: str) -> str:
        """Return words of the page, which count as met from now on. They must stand in
        its docs.
        """
        assert words in self.words, f"docs/{self.name} does not say *{words}*"
        self.left.discard(words)
        return words

    def sees(
        self, page: Any, words: str, *, within: str = "body", shown: str = ""
    ) -> None:
        """Wait until the words are visible on the page; `shown` is what stands there
        for a word with a variable.
        """
        text = shown or self.word(words)
        self.word(words)
        area = page.locator(within)
        # The words on the button of a form of the admin are its value.
        named = area.get_by_text(text).or_(
            area.locator(f'input[type=submit][value="{text}"]')
        )
        named = named.or_(area.get_by_placeholder(text, exact=True))
        named.filter(visible=True).first.wait_for()

    def press(
        self, page: Any, words: str, *, within: str = "body", shown: str = ""
    ) -> None:
        """Press the link, button or line that is called so."""
        text = shown or words
        self.word(words)
        pattern = re.compile(rf"^\s*{_over_lines(text)}")
        targets = page.locator(within).locator("a, button, summary, label, [role=tab]")
        targets.filter(has_text=pattern, visible=True).first.click()

    def fill(self, page: Any, words: str, value: str, *, within: str = "body") -> None:
        """Write into the field that is called so."""
        label = re.compile(rf"^\s*{_over_lines(self.word(words))}\b")
        page.locator(within).get_by_label(label).filter(visible=True).first.fill(value)

    def says(self, sentence: str) -> str:
        """Return a stretch of the docs that has no italics, such as a label in code. It
        must stand there.
        """
        assert sentence in self.text, f"docs/{self.name} does not say {sentence!r}"
        return sentence

    def table(self, head: str) -> list[list[str]]:
        """Return the cells of the rows of the table whose first column is called so."""
        start = next(
            at for at, line in enumerate(self.lines) if line.startswith(f"| {head} |")
        )
        rows = []
        for line in self.lines[start + 2 :]:
            if not line.startswith("|"):
                break
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        return rows

    def is_walked(self, *elsewhere: str) -> None:
        """Assert that each word was met. `elsewhere` are words of the docs that name
        nothing on a page.
        """
        for words in elsewhere:
            self.word(words)
        assert self.left == set(), f"docs/{self.name} names what this walk has not met"


def _over_lines(text: str) -> str:
    """Return a pattern for a text whose blanks may be line breaks of a template."""
    return r"\s+".join(re.escape(word) for word in text.split())
