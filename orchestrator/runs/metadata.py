"""Metadata as people type it, `team=claims`, and as the parameters of an address name
it, `metadata.team=claims`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from checkpoints.core.strict_json import NotStrict, parse_strict, refuse_repeated
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.step.notes import checked_metadata

PARAMETER = "metadata."
"""The prefix of parameters that narrow a list to rows with a value of metadata."""


def read_pairs(texts: Iterable[str]) -> dict[str, Any]:
    """Return the metadata of texts like `team=claims` by name. Numbers, true, false and
    text in quotes are read as JSON; the rest is text as it stands. Raises
    `InvalidValue`.
    """
    pairs = [read_pair(text) for text in texts]
    try:
        refuse_repeated([name for name, _ in pairs])
    except NotStrict as error:
        raise InvalidValue(f"the metadata {error}", path="metadata") from None
    return {name: _value(text) for name, text in pairs}


def read_pair(text: str) -> tuple[str, str]:
    """Return a name and the text of its value. Raises `InvalidValue`."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise InvalidValue(
            f"{text[:80]!r} cannot be read as metadata; "
            "write a name and its value, as team=claims",
            path="metadata",
        )
    return name.strip(), value.strip()


def _value(text: str) -> Any:
    try:
        value = parse_strict(text)
    except ValueError:
        return text
    # Metadata has no lists, objects and nulls, so what looks like one is text too.
    if isinstance(value, str | int | float):
        return value
    return text


def split_filters(
    parameters: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the other parameters of a list, and the texts of `metadata.<name>` by
    name.

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
