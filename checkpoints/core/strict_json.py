"""Parsing of JSON from outside, in the same way at every entrance: a text that other
parsers could read as another value is refused. Pure.
"""

import json
from collections.abc import Iterable
from typing import Any


class NotStrict(ValueError):
    """The text is no JSON, or has a key twice. The message names the place; `path` is
    that of a repeated key.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written, keys repeated where they were."""


def parse_strict(text: str | bytes) -> Any:
    """Return the value of a JSON text: no key twice in one object, no NaN or Infinity,
    no half of a surrogate pair.

    Raises `NotStrict`.
    """
    try:
        # `json.loads` would guess the encoding of bytes.
        if isinstance(text, bytes):
            text = text.decode()
        # As pairs, because a dict has lost a repeated key already.
        parsed = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse)
        return _plain(parsed, "")
    except NotStrict:
        raise
    except json.JSONDecodeError as error:
        raise NotStrict(
            f"line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise NotStrict("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise NotStrict("it is not UTF-8") from None
    except ValueError as error:
        raise NotStrict(str(error)) from None


def refuse_repeated(names: Iterable[str]) -> None:
    """Raise `NotStrict` naming the first of these names that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            shown = shown_key(name)
            raise NotStrict(f"{shown} is given more than once", path=shown)
        seen.add(name)


def shown_key(name: str) -> str:
    """Return a key as a message can contain it."""
    return name[:200].encode("utf-8", "replace").decode()


def _refuse(word: str) -> Any:
    raise NotStrict(f"{word} is not valid JSON")


def _plain(value: Any, path: str) -> Any:
    """Return the value with objects as dicts. Raises `NotStrict`."""
    if isinstance(value, list) and not isinstance(value, _Pairs):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, str):
        _require_whole(value, path)
    if not isinstance(value, _Pairs):
        return value

    values: dict[str, Any] = {}
    for name, inner in value:
        inner_path = shown_key(name)
        if path:
            inner_path = f"{path}.{inner_path}"
        _require_whole(name, inner_path)
        if name in values:
            raise NotStrict(f"{inner_path} is given more than once", path=inner_path)
        values[name] = _plain(inner, inner_path)
    return values


def _require_whole(text: str, path: str) -> None:
    # Most texts are ASCII, which need not be walked.
    if text.isascii():
        return
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise NotStrict(f"{path or 'it'} holds half of a surrogate pair")
