"""Metadata as people type it and as addresses name it: `team=claims`, and `metadata.team=claims`."""

from collections.abc import Iterable, Mapping
from typing import Any

from checkpoints.core.strict_json import NotStrict, parse_strict, refuse_repeated
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.notes import checked_metadata

PARAMETER = "metadata."
"""How a parameter begins that narrows a list to rows with a value of metadata."""


def read_pairs(texts: Iterable[str]) -> dict[str, Any]:
    """Return the metadata of texts like `team=claims` by name. Numbers, true and false are read as such, and so is text
    in quotes; the rest is text as it stands. Raises `InvalidValue`.
    """
    pairs = [read_pair(text) for text in texts]
    try:
        refuse_repeated([name for name, _ in pairs])
    except NotStrict as error:
        raise InvalidValue(f"the metadata {error}", path="metadata") from None
    return {name: _value(text) for name, text in pairs}


def read_pair(text: str) -> tuple[str, str]:
    """A name and the text of its value. Raises `InvalidValue`."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise InvalidValue(f"{text[:80]!r} is no metadata; write a name and its value, as team=claims", path="metadata")
    return name.strip(), value.strip()


def _value(text: str) -> Any:
    try:
        value = parse_strict(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float) else text


def split_filters(parameters: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the parameters of a list, and apart from them the texts of `metadata.<name>` by name.

    Raises `InvalidValue` for a name or text that no metadata can have.
    """
    others: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for parameter, text in parameters.items():
        if parameter.startswith(PARAMETER):
            metadata[parameter.removeprefix(PARAMETER)] = text
        else:
            others[parameter] = text
    checked_metadata(metadata)
    return others, metadata
