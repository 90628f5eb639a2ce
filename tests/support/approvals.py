"""Approvals that tests ask for."""

from typing import Any

from django.contrib.auth.models import Group

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
