"""How a value and what would replace it are shown: as fields, as marked text, or as added and removed items. Pure.

Pages of both upper floors use it. Nothing that a person decides on is left out: equal fields are folded, never dropped.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals.forms.controls import humanise

LETTER = 120
"""Characters from which a text is shown as a letter with marked words."""
WORDWISE = 64 * 1024
"""Characters up to which texts are compared word by word; longer ones line by line."""
_ODD = re.compile("[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_TOKENS = re.compile(r"\s+|[^\s\w]|\w+")


@dataclass(frozen=True, slots=True)
class Row:
    """One field: its label, and both values as texts. `state` is same, changed, new, gone or info."""

    label: str
    state: str
    now: str
    proposed: str
    long: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is one word, as amounts, accounts and ids are, that no line may break."""
        return len(self.proposed) <= 34 and not any(letter.isspace() for letter in self.proposed)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text: "same", "in" (inserted) or "out" (deleted)."""

    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A longer text with its changes marked; its label is empty where it is the whole value."""

    label: str
    paragraphs: list[list[Piece]]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the template draws, each part where it has something: fields, texts, items of a list.

    `fresh`: all of it is new. `states_before`: the value itself says what it changes, as {before, after}.
    """

    rows: list[Row] = field(default_factory=list)
    same: list[Row] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    items: list[Piece] = field(default_factory=list)
    fresh: bool = False
    states_before: bool = False


def compare(now: Any, proposed: Any, *, adds: bool = False) -> Shown:
    """How the change from `now` to `proposed` is shown. `adds`: the value is added to what is there."""
    if is_long(proposed):
        return Shown(texts=[_text("", now if not adds else None, proposed)])
    if adds and isinstance(proposed, list) and len(proposed) == 1 and isinstance(proposed[0], Mapping):
        proposed = proposed[0]
    if isinstance(proposed, list):
        before = now if isinstance(now, list) and not adds else []
        return Shown(items=list(_items(before, proposed)), fresh=not before)
    rows = list(_rows(None if adds else now, proposed))
    changed = [row for row in rows if row.state != "same"]
    plain = [row for row in changed if not row.long]
    texts = [_text(row.label, row.now, row.proposed) for row in changed if row.long]
    same = [row for row in rows if row.state == "same"]
    fresh, states_before = all(row.state == "new" for row in rows), any(row.state == "info" for row in rows)
    return Shown(plain, same, texts, fresh=fresh, states_before=states_before)


def is_long(value: Any) -> bool:
    """Whether a value is a text that is read as a letter."""
    return isinstance(value, str) and (len(value) > LETTER or "\n" in value)


def _text(label: str, now: Any, proposed: str) -> Text:
    return Text(label, paragraphs(pieces(now if isinstance(now, str) else "", proposed)))


def _rows(now: Any, proposed: Any) -> Iterator[Row]:
    if not isinstance(proposed, Mapping):
        yield _row("Value", _Leaf(now), _Leaf(proposed))
        return
    if isinstance(proposed.get("before"), Mapping) and "after" in proposed:
        # A value that says itself what it changes: shown as that change, the rest of it below.
        yield from _rows(proposed["before"], proposed["after"] or dict.fromkeys(proposed["before"]))
        rest = {key: value for key, value in proposed.items() if key not in ("before", "after")}
        yield from (Row(_label(path), "info", "", leaf.text) for path, leaf in _leaves(rest))
        return
    before = dict(_leaves(now)) if isinstance(now, Mapping) else {}
    after = dict(_leaves(proposed))
    for path in [*after, *(path for path in before if path not in after)]:
        yield _row(_label(path), before.get(path) or _Leaf(None), after.get(path) or _Leaf(None))


def _label(path: Sequence[str]) -> str:
    return " › ".join(humanise(part) for part in path)


class _Leaf:
    """A value at the end of a path; None counts as not set."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.text = text_of(value)


def _leaves(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Leaf]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner and len(path) < 3:
            yield from _leaves(inner, (*path, str(key)))
        else:
            yield (*path, str(key)), _Leaf(inner)


def _row(label: str, now: _Leaf, proposed: _Leaf) -> Row:
    if now.value == proposed.value and type(now.value) is type(proposed.value):
        state = "same"
    elif now.value is None:
        state = "new"
    else:
        state = "gone" if proposed.value is None else "changed"
    return Row(label, state, now.text, proposed.text, long=is_long(proposed.value))


def text_of(value: Any) -> str:
    """A value as a reader wants it: texts as they are, yes and no, lists by lines, the rest as JSON. Empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _edged(visible(value)) if value else "empty text"
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return "\n".join(text_of(one) for one in value) or "none"
    return json.dumps(value, ensure_ascii=False)


def _edged(text: str) -> str:
    """Blanks at the ends of a text cannot be seen, and are what is wrong with it more often than not."""
    inner = text.strip(" ")
    start = text.index(inner) if inner else len(text)
    return "␣" * start + inner + "␣" * (len(text) - start - len(inner))


def visible(text: str) -> str:
    """The text with characters that cannot be seen, or that turn the reading direction, written out by number."""
    return _ODD.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)


def _items(now: Sequence[Any], proposed: Sequence[Any]) -> Iterator[Piece]:
    before, after = ([text_of(one) for one in side] for side in (now, proposed))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield from (Piece("same", text) for text in before[a:b])
        else:
            yield from (Piece("out", text) for text in before[a:b])
            yield from (Piece("in", text) for text in after[c:d])


def pieces(now: str, proposed: str) -> list[Piece]:
    """Two texts as one, with what went and what came marked."""
    if not now:
        return [Piece("same", visible(proposed))]
    wordwise = len(now) + len(proposed) <= WORDWISE
    before, after = (_TOKENS.findall(side) if wordwise else side.splitlines(keepends=True) for side in (now, proposed))
    found: list[Piece] = []
    # Exact matching of thousands of common words takes seconds; leaving the commonest out as anchors does not.
    short = len(before) + len(after) < 2000
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=not short).get_opcodes():
        if kind == "equal":
            found.append(Piece("same", visible("".join(before[a:b]))))
            continue
        if a < b:
            found.append(Piece("out", visible("".join(before[a:b]))))
        if c < d:
            found.append(Piece("in", visible("".join(after[c:d]))))
    return found


def paragraphs(found: Sequence[Piece]) -> list[list[Piece]]:
    """The same pieces, cut where an empty line stands."""
    result: list[list[Piece]] = [[]]
    for piece in found:
        first, *rest = re.split(r"\n{2,}", piece.text)
        if first:
            result[-1].append(Piece(piece.state, first))
        for text in rest:
            result.append([Piece(piece.state, text)] if text else [])
    return [paragraph for paragraph in result if paragraph]


def as_json(value: Any) -> str:
    """A value as indented JSON, the same that is stored but for the blanks; empty for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)
