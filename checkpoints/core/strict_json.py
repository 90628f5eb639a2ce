"""JSON from outside, read one way at every door: what other readers could take for something else is refused. Pure."""

import json
from collections.abc import Iterable
from typing import Any


class NotStrict(ValueError):
    """The text is no JSON, or says one thing twice. The message names the place; `path` is that of a repeated key."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written, keys repeated where they were."""


def parse_strict(text: str | bytes) -> Any:
    """The value of a JSON text: no key twice in one object, no NaN or Infinity, no half of a surrogate pair.

    Raises `NotStrict`.
    """
    try:
        given = text.decode() if isinstance(text, bytes) else text
        found = json.loads(given, object_pairs_hook=_Pairs, parse_constant=_no)
        return _plain(found, "")
    except NotStrict:
        raise
    except json.JSONDecodeError as error:
        raise NotStrict(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise NotStrict("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise NotStrict("it is not UTF-8") from None
    except ValueError as error:
        raise NotStrict(str(error)) from None


def refuse_repeated(names: Iterable[str]) -> None:
    """Raises `NotStrict` naming the first of these names that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            shown = shown_key(name)
            raise NotStrict(f"{shown} is given more than once", path=shown)
        seen.add(name)


def shown_key(name: str) -> str:
    """A key as a message can carry it."""
    return name[:200].encode("utf-8", "replace").decode()


def _no(word: str) -> Any:
    raise NotStrict(f"{word} is no JSON")


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, _Pairs):
        found: dict[str, Any] = {}
        for name, inner in value:
            here = f"{path}.{shown_key(name)}" if path else shown_key(name)
            _require_whole(name, here)
            if name in found:
                raise NotStrict(f"{here} is given more than once", path=here)
            found[name] = _plain(inner, here)
        return found
    if isinstance(value, list):
        return [_plain(inner, f"{path}[{n}]") for n, inner in enumerate(value)]
    if isinstance(value, str):
        _require_whole(value, path)
    return value


def _require_whole(text: str, path: str) -> None:
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise NotStrict(f"{path or 'it'} holds half of a surrogate pair")
