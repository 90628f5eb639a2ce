"""Questions: what a node asks people for instead of proposing it, and what an answer
must fit. Pure.

A question is a held write without a value. What is shown beside a revision of it says
`ask`: {schema, answered}; where that is not answered, its value is none, which is not the
value null.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json

LARGEST_SCHEMA = 65_536
"""The most bytes of the JSON Schema of an answer."""
MOST_FAULTS = 20
"""The most parts of an answer of which it is said what is wrong."""
LONGEST_FAULT = 300
NOT_ANSWERED = (
    "nobody has answered it yet, so there is nothing to approve; answer it with an edit, "
    "or reject it"
)
NO_VALUE: Any = object()
"""Stands for the proposal of a question: none, which differs from every value."""


def question_of(schema: Any) -> dict[str, Json]:
    """Return a question as it is stored: {schema}, a JSON Schema or None. `schema` is
    one, or a type for which pydantic makes one. Raises `InvalidValue`.
    """
    if schema is None:
        return {"schema": None}
    plain = canonical.normalised(_as_json_schema(schema))
    size = len(canonical.dumps(plain))
    if size > LARGEST_SCHEMA:
        raise PayloadTooLarge(
            f"the schema of an answer has {size:,} bytes; at most {LARGEST_SCHEMA:,}"
        )
    try:
        Draft202012Validator.check_schema(plain)
    except SchemaError as error:
        raise InvalidValue(
            f"the schema of an answer is no JSON Schema: {error.message}", path="schema"
        ) from error
    # Nothing outside is read to say what an answer may be.
    if not all(reference.startswith("#") for reference in _references(plain)):
        raise InvalidValue(
            "the schema of an answer refers to another document; write it out",
            path="schema",
        )
    return {"schema": plain}


def _as_json_schema(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return schema
    try:
        return TypeAdapter(schema).json_schema()
    except (PydanticUserError, TypeError) as error:
        raise InvalidValue(
            f"schema={schema!r} is neither a JSON Schema nor a type that has one",
            path="schema",
        ) from error


def _references(schema: Json) -> Iterator[str]:
    if isinstance(schema, list):
        for member in schema:
            yield from _references(member)
    elif isinstance(schema, dict):
        for keyword, value in schema.items():
            if keyword in ("$ref", "$dynamicRef"):
                yield str(value)
            yield from _references(value)


def shown_of(question: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return what is shown beside the proposal of a question; nothing beside a write
    that has a value.
    """
    if question is None:
        return {}
    return {"ask": {**question, "answered": False}}


def stored_question(shown: Mapping[str, Any]) -> dict[str, Json] | None:
    """Return the question beside which this is shown, as it is stored."""
    question = shown.get("ask")
    if not isinstance(question, Mapping):
        return None
    return {"schema": question.get("schema")}


def is_unanswered(shown: Mapping[str, Any]) -> bool:
    """Return whether this is shown beside a question that has no answer."""
    question = shown.get("ask")
    # What was erased is no mapping any more.
    return isinstance(question, Mapping) and question.get("answered") is False


def require_fitting(
    shown: Mapping[str, Any], channel: str, answer: Json, **facts: Any
) -> None:
    """Raise `InvalidValue`, naming each part, if an answer does not fit the schema of
    its question. `facts` go into the error.
    """
    question = stored_question(shown)
    if question is None or question["schema"] is None:
        return
    faults = Draft202012Validator(question["schema"]).iter_errors(answer)
    errors: list[dict[str, str]] = []
    for fault in islice(faults, MOST_FAULTS):
        path = ".".join([channel, *map(str, fault.absolute_path)])
        # It quotes the value, which may be large.
        errors.append({"path": path, "reason": fault.message[:LONGEST_FAULT]})
    if not errors:
        return
    sentences = [f"{error['path']}: {error['reason']}" for error in errors]
    raise InvalidValue(
        f"the answer does not fit what was asked: {'; '.join(sentences)}",
        channel=channel,
        path=errors[0]["path"],
        reason=errors[0]["reason"],
        errors=errors,
        **facts,
    )
