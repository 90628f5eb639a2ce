"""Writes, sends and commands: what a node may return besides a dict. Values only;
`output_of` checks them. And the form of a write: what a node says of it besides its
label.

A form is stored as {schema, effect}: the JSON Schema that an edit must fit, and the
effect that whoever acts on the write has on the world. Either may be None. It is shown
beside the write, so that a signature is bound to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs import answer_schema
from orchestrator.engine.graphs.effect import EFFECTS
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.hints import explained_class

LONGEST_FAULT = 300
MOST_SCHEMA_BYTES = 4_194_304
"""The most bytes of the schemas of all writes of a task: each revision keeps its own."""


@dataclass(frozen=True, slots=True)
class Write:
    """A wish to change one channel. Reviewers see `label` instead of the channel's name.

    At a gate, an edit must fit `schema` besides the channel's type: a JSON Schema, or a
    type for which pydantic makes one. `effect` names what whoever acts on the value
    does to the world, as nodes name theirs. Both are shown, and part of what is signed.
    """

    channel: str
    value: Any
    label: str | None = None
    schema: Any = None
    effect: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Start `node` at once with `payload`, a JSON value that it reads as `ctx.payload`."""

    node: str
    payload: Any = None


@explained_class
@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Command:
    """Writes, and the way on. `goto` replaces the node's outgoing edges for this
    visit, `send` adds to them.
    """

    update: dict[str, Any] | Sequence[Write] | None = None
    goto: str | Sequence[str] | None = None
    send: Sequence[Send] = ()


def form_of(
    schema: Any, effect: Any, *, of_decimal: bool = False
) -> dict[str, Json] | None:
    """Return the form of a write as it is stored; None for a write without one.
    `schema` is a JSON Schema, or a type for which pydantic makes one; `of_decimal` says
    that the write is to a channel of amounts. Raises `InvalidValue`, or
    `PayloadTooLarge`.
    """
    if schema is None and effect is None:
        return None
    if effect is not None and effect not in EFFECTS:
        raise InvalidValue(
            f"effect={effect!r} is none of {', '.join(EFFECTS)}", path="effect"
        )
    stored: Json = None
    if schema is not None:
        stored = answer_schema.schema_of(schema, of_decimal=of_decimal)
    return {"schema": stored, "effect": effect}


def schema_size(form: Mapping[str, Json]) -> int:
    """Return the bytes of the schema of a form."""
    return len(canonical.encode(form["schema"]))


def shown_form(form: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return what is shown beside a write of its form; nothing beside one without."""
    return {} if form is None else {"form": dict(form)}


def stored_form(shown: Mapping[str, Any]) -> dict[str, Json] | None:
    """Return the form beside which this is shown, as it is stored."""
    form = shown.get("form")
    # An erased value is no longer a mapping.
    if not isinstance(form, Mapping):
        return None
    return {"schema": form.get("schema"), "effect": form.get("effect")}


def named_effect(form: Mapping[str, Json] | None) -> str:
    """Return the effect that a form names; empty without one."""
    return str((form or {}).get("effect") or "")


def require_fitting_form(
    shown: Mapping[str, Any], channel: str, edited: Json, **facts: Any
) -> None:
    """Raise `InvalidValue`, naming each part, if an edited value does not fit the
    schema that is shown beside its write. `facts` go into the error.
    """
    form = stored_form(shown)
    if form is not None:
        sentence = "the value does not fit the schema of its write"
        require_schema(form["schema"], channel, edited, sentence, **facts)


def require_schema(
    schema: Json, channel: str, value: Json, sentence: str, **facts: Any
) -> None:
    """Raise `InvalidValue` with this sentence, naming each part, if a value does not fit
    a schema; None fits all. `facts` go into the error.
    """
    if schema is None:
        return
    errors = faults_in(schema, channel, value)
    if errors:
        message = f"{sentence}: {in_words(errors)}"
        raise InvalidValue(message, **facts_of(channel, errors), **facts)


def faults_in(schema: Json, channel: str, value: Json) -> list[dict[str, str]]:
    """Return what of a value does not fit a schema, as [{path, reason}]."""
    errors: list[dict[str, str]] = []
    for fault in answer_schema.faults_of(schema, value):
        path = ".".join([channel, *map(str, fault.absolute_path)])
        # It quotes the value, which may be large.
        errors.append({"path": path, "reason": fault.message[:LONGEST_FAULT]})
    return errors


def in_words(errors: list[dict[str, str]]) -> str:
    """Return such faults as one text."""
    return "; ".join(f"{error['path']}: {error['reason']}" for error in errors)


def facts_of(channel: str, errors: list[dict[str, str]]) -> dict[str, Any]:
    """Return such faults as the facts of an error."""
    return {
        "channel": channel,
        "path": errors[0]["path"],
        "reason": errors[0]["reason"],
        "errors": errors,
    }
