"""Filters for everything that comes out of a run: texts in which every character can be
seen, values whose types can be distinguished.

Whatever a template prints that a run, a node's code or a person brought goes through
one of them: `visible` in text, `visible_plain` where no markup may stand (titles,
attributes).
"""

import re
from typing import Any

from django import template
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from approvals.display.leaf import ERASED, Leaf, leaf_of
from approvals.display.text_pieces import Piece
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_text import (
    BLANK,
    LINE_END,
    TextPiece,
    is_odd,
    stretches,
    visible_text,
    written_out,
)
from orchestrator.engine.step.notes import figure_number, filter_text

register = template.Library()

LONGEST_FACT = 300
"""The most characters of a fact; the rest is cut."""


@register.filter
def visible(text: Any) -> SafeString:
    """Return a text with its invisible characters marked, isolated from the direction
    of the text beside it.
    """
    # A filter before this one has marked it already.
    if isinstance(text, SafeString):
        return text
    return _isolated(stretches(str(text)))


_ADDRESS = re.compile(r"https?://[!-~]+", re.IGNORECASE)
"""An address in a text, of characters that cannot be mistaken for others."""
_BEHIND_ADDRESS = ".,;:!?'\")]}>"
"""Characters that end a sentence or a quotation rather than an address."""


@register.filter
def visible_comment(text: Any) -> SafeString:
    """Return a text of a person as `visible` does, line by line, with addresses of the
    web as links. What a link shows is where it leads.
    """
    lines = [_with_links(line) for line in str(text).split("\n")]
    return format_html_join(
        mark_safe("<br>"), "<bdi>{}</bdi>", ((line,) for line in lines)
    )


def _with_links(line: str) -> SafeString:
    parts: list[SafeString] = []
    end_of_last = 0
    for match in _ADDRESS.finditer(line):
        address = match.group().rstrip(_BEHIND_ADDRESS)
        if not address.partition("://")[2]:
            continue
        parts.append(_between(line, end_of_last, match.start()))
        parts.append(
            format_html(
                '<a href="{}" rel="noopener noreferrer">{}</a>', address, address
            )
        )
        end_of_last = match.start() + len(address)
    parts.append(_between(line, end_of_last, len(line)))
    return mark_safe("".join(parts))  # noqa: S308 (each part is escaped)


def _between(line: str, first: int, end: int) -> SafeString:
    """Return the markup of a part of a line, whose edges are marked only where they are
    those of the line.
    """
    is_end = end == len(line)
    return _html(stretches(line[first:end], starts=first == 0, ends=is_end))


@register.filter
def visible_title(text: Any) -> SafeString:
    """Return a text as `visible` does, for titles and sentences, in which no amount,
    account or id may break over two lines.
    """
    pieces = stretches(str(text))
    parts: list[str] = []
    for stretch in pieces:
        is_plain = stretch.kind == "plain"
        parts.append(_whole_words(stretch.text) if is_plain else _marked(stretch))
    html = mark_safe("".join(parts))  # noqa: S308 (each part is escaped)
    if all(_is_simple(stretch) for stretch in pieces):
        return html
    return format_html("<bdi>{}</bdi>", html)


_ID = re.compile(r"(?<!\S)(?=\S*\d)\S{2,34}(?!\S)")
"""A word with a digit in it, as amounts, accounts, dates and ids are."""


def _whole_words(text: str) -> str:
    """Return a text whose words with digits stay on one line."""
    parts: list[str] = []
    last = 0
    for match in _ID.finditer(text):
        parts.append(conditional_escape(text[last : match.start()]))
        parts.append(format_html('<span class="id">{}</span>', match.group()))
        last = match.end()
    parts.append(conditional_escape(text[last:]))
    return "".join(parts)


@register.filter
def visible_plain(text: Any) -> str:
    """Return a text as `visible` does, but without markup."""
    return visible_text(str(text))


@register.filter
def visible_code(text: Any) -> SafeString:
    """Return JSON, or other lines whose layout is part of them."""
    return _html(stretches(str(text), starts=False, ends=False, code=True))


@register.filter
def visible_piece(piece: Piece) -> SafeString:
    """Return a stretch of a longer text."""
    return _html(stretches(piece.text, starts=piece.starts, ends=piece.ends))


@register.filter
def shown_value(leaf: Leaf) -> SafeString:
    """Return a value in markup that cannot be mistaken for another value's."""
    if leaf.kind == "list":
        items = format_html_join("", "<li>{}</li>", _each(leaf))
        return format_html('<ul class="vals">{}</ul>', items)
    if leaf.kind == "count":
        return format_html('<span class="many">{}</span>', leaf.text)
    if leaf.kind == "nothing":
        return format_html('<span class="nil">{}</span>', leaf.text)
    if leaf.kind == "account":
        return _account(leaf)

    rest = SafeString("")
    if leaf.rest:
        rest = format_html('<span class="cut">{}</span>', leaf.rest)
    if leaf.kind == "code":
        code = visible_code(leaf.text)
        return format_html('<code class="js">{}</code>{}', code, rest)
    # A blank at the end of a text that was cut stands inside of it.
    text = _isolated(stretches(leaf.text, ends=not rest))
    if leaf.kind == "quoted":
        text = format_html('<span class="qt">"</span>{}<span class="qt">"</span>', text)
    unbroken = " id" if leaf.unbroken else ""
    return format_html('<span class="exact{}">{}</span>{}', unbroken, text, rest)


def _account(leaf: Leaf) -> SafeString:
    """Return the number of an account in its groups of digits."""
    groups = [(group.text,) for group in leaf.items]
    html = format_html_join("", "<span>{}</span>", groups)
    return format_html('<span class="exact id account">{}</span>', html)


@register.filter
def shown_fact(value: Any) -> SafeString:
    """Return a fact of a run as its head shows it."""
    return shown_value(leaf_of(value, longest=LONGEST_FACT))


@register.filter
def shown_note(value: Any) -> SafeString:
    """Return a value of metadata: text as it is, anything else as JSON writes it. An
    erased value is named as such.
    """
    if is_tombstone(value):
        return visible(ERASED)
    return visible(filter_text(value))


@register.filter
def shown_figure(millionths: int) -> str:
    """Return a figure, or a sum of figures, with commas: 1,234.5."""
    return f"{figure_number(int(millionths)):,f}"


@register.filter
def unseen(value: Any) -> str:
    """Return the numbers of the characters of a field's text that its input cannot
    show, each once.
    """
    if not isinstance(value, str):
        return ""
    letters = dict.fromkeys(letter for letter in value if is_odd(letter))
    return ", ".join(written_out(letter) for letter in letters)


def _each(leaf: Leaf) -> list[tuple[SafeString]]:
    return [(shown_value(item),) for item in leaf.items]


def _isolated(pieces: list[TextPiece]) -> SafeString:
    """Return the markup of a text, isolated from the direction of the text beside it
    unless it is plain ASCII on one line.
    """
    html = _html(pieces)
    # Most texts are simple, and stay without an element around them.
    for stretch in pieces:
        if not _is_simple(stretch) or "\n" in stretch.text:
            return format_html("<bdi>{}</bdi>", html)
    return html


def _is_simple(stretch: TextPiece) -> bool:
    """Return whether a stretch has one direction and no invisible character."""
    return stretch.kind == "plain" and stretch.text.isascii()


def _html(pieces: list[TextPiece]) -> SafeString:
    html = "".join(_marked(stretch) for stretch in pieces)
    return mark_safe(html)  # noqa: S308 (each part is escaped)


def _marked(stretch: TextPiece) -> SafeString:
    if stretch.kind == "plain":
        return conditional_escape(stretch.text)
    if stretch.kind == "turned":
        return format_html("<bdi>{}</bdi>", _html(list(stretch.inner)))
    if stretch.kind == "blank":
        return format_html('<span class="odd gap">{}</span>', BLANK * len(stretch.text))
    # The line still ends here, so that the layout stays.
    if stretch.kind == "end":
        return format_html('<span class="odd gap">{}</span>\n', LINE_END)
    return format_html('<span class="odd">{}</span>', written_out(stretch.text))
