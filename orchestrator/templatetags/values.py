"""Filters for what comes out of a run: texts in which everything can be seen, values with their type told apart.

Whatever a template prints that a run, a node's code or a person brought goes through one of them: `visible` in text,
`visible_plain` where no markup may stand (titles, attributes).
"""

import re
from typing import Any

from django import template
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from approvals.views.leaf import ERASED, Leaf, leaf_of
from approvals.views.text_pieces import Piece
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_text import BLANK, LINE_END, Stretch, is_odd, stretches, visible_text, written_out
from orchestrator.engine.notes import figure_number, filter_text

register = template.Library()


@register.filter
def visible(text: Any) -> SafeString:
    """A text in which what cannot be seen is marked, kept apart from the direction of what stands beside it."""
    return text if isinstance(text, SafeString) else _isolated(stretches(str(text)))


@register.filter
def visible_title(text: Any) -> SafeString:
    """The same for titles and sentences, in which no amount, account or id may break over two lines."""
    found = stretches(str(text))
    parts = "".join(_whole_words(one.text) if one.kind == "plain" else _marked(one) for one in found)
    simple = all(one.kind == "plain" and one.text.isascii() for one in found)
    html = mark_safe(parts)  # noqa: S308 (each part is escaped)
    return html if simple else format_html("<bdi>{}</bdi>", html)


_ID = re.compile(r"(?<!\S)(?=\S*\d)\S{2,34}(?!\S)")
"""A word with a digit in it, as amounts, accounts, dates and ids are."""


def _whole_words(text: str) -> str:
    """A text whose words with digits stay on one line."""
    parts, last = [], 0
    for match in _ID.finditer(text):
        parts.append(conditional_escape(text[last : match.start()]))
        parts.append(format_html('<span class="id">{}</span>', match.group()))
        last = match.end()
    return "".join([*parts, conditional_escape(text[last:])])


@register.filter
def visible_plain(text: Any) -> str:
    """The same without markup."""
    return visible_text(str(text))


@register.filter
def visible_code(text: Any) -> SafeString:
    """JSON, or other lines whose layout is their own."""
    return _html(stretches(str(text), starts=False, ends=False, code=True))


@register.filter
def visible_piece(piece: Piece) -> SafeString:
    """A stretch of a longer text."""
    return _html(stretches(piece.text, starts=piece.starts, ends=piece.ends))


@register.filter
def shown_value(leaf: Leaf) -> SafeString:
    """A value so that it can be taken for no other."""
    more = format_html('<span class="cut">{}</span>', leaf.more) if leaf.more else ""
    if leaf.kind == "list":
        return format_html('<ul class="vals">{}</ul>', format_html_join("", "<li>{}</li>", _each(leaf)))
    if leaf.kind == "count":
        return format_html('<span class="many">{}</span>', leaf.text)
    if leaf.kind == "nothing":
        return format_html('<span class="nil">{}</span>', leaf.text)
    if leaf.kind == "account":
        groups = format_html_join("", "<span>{}</span>", ((group.text,) for group in leaf.items))
        return format_html('<span class="exact id account">{}</span>', groups)
    if leaf.kind == "code":
        return format_html('<code class="js">{}</code>{}', visible_code(leaf.text), more)
    text = _isolated(stretches(leaf.text, ends=not more))
    if leaf.kind == "quoted":
        text = format_html('<span class="qt">"</span>{}<span class="qt">"</span>', text)
    return format_html('<span class="exact{}">{}</span>{}', " id" if leaf.unbroken else "", text, more)


@register.filter
def shown_fact(value: Any) -> SafeString:
    """A figure of a run as its head shows it."""
    return shown_value(leaf_of(value, longest=300))


@register.filter
def shown_note(value: Any) -> SafeString:
    """A value of metadata: text as it is, anything else as JSON writes it; what was erased is called so."""
    return visible(ERASED if is_tombstone(value) else filter_text(value))


@register.filter
def shown_figure(millionths: int) -> str:
    """A figure, or a sum of some, with commas: 1,234.5."""
    return f"{figure_number(int(millionths)):,f}"


@register.filter
def unseen(value: Any) -> str:
    """The characters of a field's text that its input cannot show, by number."""
    letters = dict.fromkeys(letter for letter in value if is_odd(letter)) if isinstance(value, str) else {}
    return ", ".join(written_out(letter) for letter in letters)


def _each(leaf: Leaf) -> list[tuple[SafeString]]:
    return [(shown_value(item),) for item in leaf.items]


def _isolated(found: list[Stretch]) -> SafeString:
    simple = all(one.kind == "plain" and one.text.isascii() and "\n" not in one.text for one in found)
    return _html(found) if simple else format_html("<bdi>{}</bdi>", _html(found))


def _html(found: list[Stretch]) -> SafeString:
    return mark_safe("".join(_marked(one) for one in found))  # noqa: S308 (each part is escaped)


def _marked(one: Stretch) -> SafeString:
    if one.kind == "plain":
        return conditional_escape(one.text)
    if one.kind == "turned":
        return format_html("<bdi>{}</bdi>", _html(list(one.inner)))
    if one.kind == "blank":
        return format_html('<span class="odd gap">{}</span>', BLANK * len(one.text))
    if one.kind == "end":
        return format_html('<span class="odd gap">{}</span>\n', LINE_END)
    return format_html('<span class="odd">{}</span>', written_out(one.text))
