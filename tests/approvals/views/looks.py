"""What of a rendered change a reader can tell apart: its text with what marks it,
without what only programs see.
"""

from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

from django.template.loader import render_to_string

from approvals.display import comparison
from approvals.views.card_pages import CardPages
from approvals.views.write_cards import page_of

WRITE = "0" * 8 + "-0000-0000-0000-" + "0" * 12
SEEN = {
    "td": "|",
    "th": "|",
    "li": "•",
    "ins": "+",
    "del": "-",
    "code": "`",
    "tr": "/",
    "summary": "#",
    "h4": "=",
    "p": "¶",
}
SEEN_CLASSES = {
    "nil": "*",
    "odd": "¤",
    "qt": "“",
    "cut": "…",
    "letter": "letter",
    "items": "items",
    "env-h": "head",
}
UNSEEN_CLASSES = {"sr"}
KEEP = {"bdi", "ins", "del"}

ALIKE = {
    "an object for an empty list": ({"a": 1}, []),
    "a list for an object": (["x"], {"a": 1}),
    "texts for numbers": (["1", "2"], [1, 2]),
    "truth for a word": ([True], ["yes"]),
    "yes": (True, "yes"),
    "true": (True, "true"),
    "no": (False, "no"),
    "a number for a text": (1, "1"),
    "a fraction": (1, 1.0),
    "empty text": ("", "empty text"),
    "no text": ("", None),
    "not set": (None, "not set"),
    "an empty list": ([], "none"),
    "an empty list in words": ([], "empty list"),
    "an empty object": ({}, "no fields"),
    "an empty object for a list": ({}, []),
    "no key for null": ({}, {"a": None}),
    "keys alike": ({"amount": 1}, {"amount_": 1}),
    "keys by case": ({"amount": 1}, {"Amount": 1}),
    "a path for a key": ({"a": {"b": 1}}, {"a › b": 1}),
    "a list for a text of lines": (["a", "b"], "a\nb"),
    "an item of two lines": (["a\nb"], ["a", "b"]),
    "a comma": (["a, b"], ["a", "b"]),
    "JSON for a text": ({"a": {}}, '{"a": {}}'),
    "an empty line": ("a\n\nb", "a\n\n\nb"),
    "a blank": ("a b", "a  b"),
    "a blank at the end": ("a", "a "),
    "a wrapped line": ("a b", "a\nb"),
    "a letter in two ways": ("é", "e\u0301"),
    "a hidden mark": ("ab", "a\u200bb"),
    "a mark spelled out": ("a\u200bb", "a⟨U+200B⟩b"),
    "directions": ("aא1", "a1א"),
    "the end of a long text": ("y" * 3000 + "a", "y" * 3000 + "b"),
}
"""Pairs of values that somebody could take for each other."""


class _Look(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.stack: list[tuple[str, str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("col", "input", "br", "wbr"):
            return
        classes = set((dict(attrs).get("class") or "").split())
        mark = SEEN.get(tag, "") + "".join(
            SEEN_CLASSES[name] for name in sorted(classes & set(SEEN_CLASSES))
        )
        hidden = bool(classes & UNSEEN_CLASSES) or (
            bool(self.stack) and self.stack[-1][2]
        )
        self.stack.append((tag, mark, hidden))
        if mark and not hidden:
            self.parts.append(f"⟦{mark}:")

    def handle_endtag(self, tag: str) -> None:
        _, mark, hidden = self.stack.pop()
        if mark and not hidden:
            self.parts.append("⟧")

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1][2]:
            return
        kept = any(tag == "bdi" for tag, *_ in self.stack) or any(
            mark == "letter" for _, mark, _ in self.stack
        )
        self.parts.append(
            data
            if kept and data.strip("\n ") + data.strip()
            else " ".join(data.split())
        )


def look(html: str) -> str:
    """The look of a piece of a page."""
    parser = _Look()
    parser.feed(html)
    parser.close()
    return "".join(parser.parts)


def rendered(
    now: Any, proposed: Any, *, pages: CardPages | None = None, **how: Any
) -> str:
    """A change as its card shows it, one page."""
    change = comparison.compare(now, proposed, **how)
    slip = SimpleNamespace(
        anchor="w1",
        write=WRITE,
        number=1,
        beside=[],
        shown=page_of(change, pages or CardPages(), WRITE),
    )
    return render_to_string(
        "approvals/_change.html", {"slip": slip, "page": {"url": "/reviews/1/"}}
    )


def look_of(now: Any, proposed: Any, **how: Any) -> str:
    """The look of a change, all its pages one after the other."""
    change = comparison.compare(now, proposed, **how)
    count = max(change.pages, -(-len(change.same) // comparison.PAGE))
    asked = (
        CardPages({(WRITE, "change"): n, (WRITE, "same"): n}) for n in range(count)
    )
    return "\n".join(
        look(rendered(now, proposed, pages=request, **how)) for request in asked
    )
