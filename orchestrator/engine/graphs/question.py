"""Questions: what a node asks people for instead of proposing it, and what an answer
must fit. Pure.

A question is a held write without a value. What is shown beside a revision of it says
`ask`: {schema, answered}; where that is not answered, its value is none, which is not the
value null.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.engine.graphs import answer_schema
from orchestrator.engine.graphs.write import require_schema
from orchestrator.engine.values.canonical import Json

NOT_ANSWERED = (
    "nobody has answered it yet, so there is nothing to approve; answer it with an edit, "
    "or reject it"
)
NO_VALUE: Any = object()
"""Stands for the proposal of a question: none, which differs from every value."""


def question_of(schema: Any, *, of_decimal: bool = False) -> dict[str, Json]:
    """Return a question as it is stored: {schema}, a JSON Schema or None. `schema` is
    one, or a type for which pydantic makes one; `of_decimal` says that it is asked for
    a channel of amounts. Raises `InvalidValue`, or `PayloadTooLarge`.
    """
    if schema is None:
        return {"schema": None}
    return {"schema": answer_schema.schema_of(schema, of_decimal=of_decimal)}


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
    # An erased value is no longer a mapping.
    return isinstance(question, Mapping) and question.get("answered") is False


def require_fitting(
    shown: Mapping[str, Any], channel: str, answer: Json, **facts: Any
) -> None:
    """Raise `InvalidValue`, naming each part, if an answer does not fit the schema of
    its question. `facts` go into the error.
    """
    question = stored_question(shown)
    if question is not None:
        sentence = "the answer does not fit what was asked"
        require_schema(question["schema"], channel, answer, sentence, **facts)
