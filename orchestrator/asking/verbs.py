"""Asking people to decide on items, and taking the question back. Pages, API and code on
the server call these. Each joins the caller's transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser

from approvals.permissions import visible_run
from checkpoints.core.arguments import checked_number, checked_yes_or_no
from checkpoints.core.ids import is_storable, unknown_thing
from checkpoints.db.clock import read_now
from checkpoints.models import Run
from orchestrator.asking.approval import Approval, approval_of
from orchestrator.asking.item_schemas import bounded
from orchestrator.asking.reviewer_names import require_reviewers
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.gates.gate_on_run import LAST_MOMENT
from orchestrator.engine.graphs.answer_schema import one_budget
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE
from orchestrator.engine.graphs.write import (
    MOST_SCHEMA_BYTES,
    form_of,
    require_fitting_form,
    shown_form,
)
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import normalised
from orchestrator.graphs import NAME
from orchestrator.run_access.keys import checked_key, get
from orchestrator.runs import verbs
from orchestrator.runs.start_for_user import start_for

MOST_ITEMS = 1000
MOST_FACTS = 100
LONGEST_TITLE = 500
LONGEST_ID = 200
LONGEST_TEXT = 500
"""The most characters of a label, and of the label of a fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A question to people. `items` are {id, value, label?, schema?, effect?}, `facts`
    {label, value}; `deadline` is a moment with a time zone, a time, or None. With
    `reports` the caller says that they will `report` what came of it.
    """

    title: str
    items: Sequence[Mapping[str, Any]]
    reviewers: Sequence[str]
    facts: Sequence[Mapping[str, Any]] = ()
    quorum: int = 1
    reject_quorum: int = 1
    four_eyes: bool = False
    deadline: datetime | timedelta | None = None
    on_deadline: str = "reject"
    reports: bool = False


def ask(
    inquiry: Inquiry,
    *,
    key: str | None = None,
    by: AbstractBaseUser | None = None,
    on_behalf_of: AbstractBaseUser | None = None,
) -> Approval:
    """Ask people, and return the approval as it stands. The same key with the same
    question is the same approval.

    Raises `InvalidValue` (names the place), `PayloadTooLarge`, and `KeyConflict` (the
    key has another question).
    """
    people = [person for person in (by, on_behalf_of) if person is not None]
    shaped_by = [person.get_username() for person in people]
    content = _checked(inquiry, key, shaped_by)
    request = verbs.StartRequest(
        NAME, content, key=key, by=by, on_behalf_of=on_behalf_of, is_asking=True
    )
    run, _ = verbs.start_or_find(request)
    return approval_of(run)


def ask_for(
    inquiry: Inquiry,
    *,
    key: str | None = None,
    by: Any,
    on_behalf_of: str | None = None,
) -> tuple[Approval, bool]:
    """Ask as `ask` does, for a user with their own rights, and say whether this call
    asked. `on_behalf_of` is another user's name. Raises `Forbidden` too, and a
    `KeyConflict` without facts for a key of a run that they may not see.
    """
    shaped_by = [by.get_username()]
    if on_behalf_of is not None:
        shaped_by.append(on_behalf_of)
    content = _checked(inquiry, key, shaped_by)
    request = verbs.StartRequest(NAME, content, key=key, by=by, is_asking=True)
    run, is_new = start_for(request, on_behalf_of=on_behalf_of)
    return approval_of(run), is_new


def visible_approval(user: Any, id_or_key: str | UUID) -> Run:
    """Return the run of an approval. Raises `UnknownThing`, also where the user may not
    see it, and for a run of another graph.
    """
    run = visible_run(user, id_or_key, with_input=True)
    if run.graph != NAME:
        raise unknown_thing("approval", id_or_key)
    return run


def cancel(
    id_or_key: UUID | str, *, by: AbstractBaseUser | None = None, reason: str = ""
) -> Approval:
    """Take a question back: what is open is withdrawn, and what was signed stays on
    record. Raises as `runs.cancel` does.
    """
    run = get(id_or_key)
    if run.graph != NAME:
        raise unknown_thing("approval", id_or_key)
    return approval_of(verbs.cancel(run.id, by=by, reason=reason))


# The checks of an inquiry.


def _checked(
    inquiry: Inquiry, key: str | None, shaped_by: Collection[str]
) -> dict[str, Any]:
    """Return a question as the input of a run. Raises `InvalidValue`. `shaped_by` are
    the names of who asks, and of for whom they do.
    """
    # Before it is looked up: the database would refuse a text that is no key.
    checked_key(key)
    _require_text(inquiry.title, "title", LONGEST_TITLE)
    checked_number(inquiry.quorum, "quorum", least=1, most=100)
    checked_number(inquiry.reject_quorum, "reject_quorum", least=1, most=100)
    content = {
        "title": inquiry.title,
        "facts": _facts(inquiry.facts),
        "items": _bounded_items(inquiry.items),
        "reviewers": sorted({*map(str, inquiry.reviewers)}),
        "quorum": inquiry.quorum,
        "reject_quorum": inquiry.reject_quorum,
        "four_eyes": inquiry.four_eyes,
        "on_deadline": inquiry.on_deadline,
        "reports": checked_yes_or_no(inquiry.reports, "reports"),
        **_deadline(inquiry),
    }
    # A question that was asked already stays what it is, whoever has left since.
    if key is None or not Run.objects.filter(key=key).exists():
        _require_answerable(inquiry, content["reviewers"], shaped_by)
    return content


def _require_answerable(
    inquiry: Inquiry, reviewers: Sequence[str], shaped_by: Collection[str]
) -> None:
    """Raise `InvalidValue` for a question that nobody could answer in time."""
    excluded = shaped_by if inquiry.four_eyes else ()
    require_reviewers(reviewers, quorum=inquiry.quorum, excluded=excluded)
    moment = inquiry.deadline
    if isinstance(moment, datetime) and moment <= read_now():
        raise InvalidValue("deadline: it is not ahead of now", path="deadline")


def _deadline(inquiry: Inquiry) -> dict[str, Any]:
    deadline = inquiry.deadline
    if inquiry.on_deadline not in ("reject", "fail"):
        raise InvalidValue(
            "on_deadline: it is reject or fail; silence approves nothing",
            path="on_deadline",
        )
    if deadline is None:
        return {}
    if isinstance(deadline, timedelta):
        if not timedelta(seconds=1) <= deadline <= LONGEST_DEADLINE:
            raise InvalidValue(
                "deadline: it is a second to a hundred years", path="deadline"
            )
        return {"deadline_seconds": int(deadline.total_seconds())}
    return {"deadline": _moment(deadline)}


def _moment(deadline: datetime) -> datetime:
    """Return a deadline in UTC. Raises `InvalidValue` for a moment that the gate would
    refuse when it asks.
    """
    if deadline.utcoffset() is None:
        raise InvalidValue("deadline: it has no time zone", path="deadline")
    try:
        moment = deadline.astimezone(UTC)
    except OverflowError:
        raise InvalidValue(
            "deadline: there is no such moment", path="deadline"
        ) from None
    if moment > LAST_MOMENT:
        raise InvalidValue(
            f"deadline: it is after {LAST_MOMENT:%Y-%m-%d}", path="deadline"
        )
    return moment


def _facts(facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if len(facts) > MOST_FACTS:
        raise InvalidValue(f"facts: at most {MOST_FACTS}", path="facts")
    named = []
    for number, fact in enumerate(facts):
        path = f"facts[{number}]"
        _require_members(fact, path, {"label", "value"}, {"label", "value"})
        _require_text(fact["label"], f"{path}.label", LONGEST_TEXT)
        named.append({"label": fact["label"], "value": fact["value"]})
    return named


def _bounded_items(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    # However many schemas there are, judging them takes no longer than one may.
    with one_budget():
        checked = _items(items)
    # Later the node would be refused for it, when nobody waits for the answer.
    schemas = [item["value_schema"] for item in checked if item["value_schema"]]
    size = sum(len(canonical.encode(schema)) for schema in schemas)
    if size > MOST_SCHEMA_BYTES:
        raise PayloadTooLarge(
            f"the schemas of the items have {size:,} bytes together; "
            f"at most {MOST_SCHEMA_BYTES:,}"
        )
    return checked


def _items(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not 1 <= len(items) <= MOST_ITEMS:
        raise InvalidValue(f"items: 1 to {MOST_ITEMS:,} of them", path="items")
    checked = []
    ids: set[str] = set()
    for number, item in enumerate(items):
        path = f"items[{number}]"
        checked.append(_item(item, path))
        if item["id"] in ids:
            raise InvalidValue(
                f"{path}.id: another item has the id {item['id']}", path=f"{path}.id"
            )
        ids.add(item["id"])
    return checked


def _item(item: Mapping[str, Any], path: str) -> dict[str, Any]:
    members = {"id", "value", "label", "schema", "effect"}
    _require_members(item, path, {"id", "value"}, members)
    _require_text(item["id"], f"{path}.id", LONGEST_ID)
    # It is shown in parentheses after the label, and must not be ambiguous.
    if {"(", ")"} & {*item["id"]}:
        raise InvalidValue(f"{path}.id: an id has no parentheses", path=f"{path}.id")
    label = item.get("label") or ""
    if label:
        _require_text(label, f"{path}.label", LONGEST_TEXT)
    schema = item.get("schema")
    if schema is not None:
        schema = bounded(schema, path=f"{path}.schema")
    _require_fitting(item, schema, path)
    return {
        "id": item["id"],
        "value": item["value"],
        "label": label,
        "value_schema": schema,
        "effect": item.get("effect"),
    }


def _require_fitting(item: Mapping[str, Any], schema: Any, path: str) -> None:
    """Raise `InvalidValue` for a schema that is none, an effect that is none, and a
    value that does not fit.
    """
    try:
        form = form_of(schema, item.get("effect"))
        require_fitting_form(shown_form(form), "value", normalised(item["value"]))
    except InvalidValue as error:
        at = error.facts.get("path") or "value"
        raise InvalidValue(f"{path}: {error.message}", path=f"{path}.{at}") from error


def _require_members(
    item: Any, path: str, needed: Collection[str], members: Collection[str]
) -> None:
    if not isinstance(item, Mapping):
        raise InvalidValue(f"{path}: it must be an object", path=path)
    for name in sorted({*needed} - {*item}):
        raise InvalidValue(f"{path}.{name}: it is missing", path=f"{path}.{name}")
    for name in sorted({*map(str, item)} - {*members}):
        raise InvalidValue(
            f"{path}.{name}: there is no such field", path=f"{path}.{name}"
        )


def _require_text(text: Any, path: str, most: int) -> None:
    is_text = isinstance(text, str) and 1 <= len(text) <= most
    if not is_text or not is_storable(text) or not text.strip():
        raise InvalidValue(f"{path}: it is a text of 1 to {most} characters", path=path)
