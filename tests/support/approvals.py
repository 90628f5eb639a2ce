"""Approvals that tests ask for."""

from typing import Any

from django.contrib.auth.models import Group

from approvals import reviews
from checkpoints.models import Run
from orchestrator import asking, runs

BODY: dict[str, Any] = {
    "title": "Pay two invoices",
    "facts": [{"label": "Total", "value": "300.00"}],
    "items": [
        {
            "id": "inv-1",
            "label": "Invoice 1",
            "value": {"amount": "100.00"},
            "schema": {
                "type": "object",
                "properties": {"amount": {"type": "string", "maxLength": 8}},
                "required": ["amount"],
            },
            "effect": "external",
        },
        {"id": "inv-2", "value": [1, 2], "effect": "write"},
    ],
    "reviewers": ["group:payers"],
    "key": "INV-7",
}


def payers(*people: Any) -> None:
    """Make the group that the body names, with these members."""
    group, _ = Group.objects.get_or_create(name="payers")
    for person in people:
        person.groups.add(group)


def opened(*, by: Any = None, **changes: Any) -> asking.Approval:
    """An approval of the body's items that waits for the group, unless changed."""
    body = {name: value for name, value in BODY.items() if name != "key"}
    approval = asking.ask(asking.Inquiry(**{**body, **changes}), by=by)
    return asking.approval_of(runs.advance(approval.run.id))


def decided(asked: asking.Approval, by: Any, *verdicts: str) -> asking.Approval:
    """The approval after these verdicts on its items, in order, and what follows."""
    decisions = []
    for item, verdict in zip(asked.items, verdicts, strict=True):
        decisions.append(
            {"write": str(item.write), "hash": item.hash, "verdict": verdict}
        )
    reviews.sign(asked.run.id, decisions, by=by)
    return asking.approval_of(runs.advance(asked.run.id))


def reported(run: Run, outcomes: Any, *, by: Any = None) -> asking.Approval:
    """The approval after these outcomes of what is signed now."""
    shown = asking.approval_of(Run.objects.get(id=run.id))
    hashes = {item.id: item.hash for item in shown.items}
    with_hashes = []
    for outcome in outcomes:
        signed = hashes.get(outcome["item"], "0" * 64)
        with_hashes.append({"hash": signed, **outcome})
    return asking.report(run.id, with_hashes, by=by)
