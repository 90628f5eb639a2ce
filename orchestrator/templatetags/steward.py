"""The head of the admin's first page."""

from typing import Any

from django import template

from orchestrator.display import steward_home

register = template.Library()
RIGHTS = (
    "checkpoints.manage_retention",
    "checkpoints.view_retentionpolicy",
)
"""Each of these permissions shows the figures of retention."""


@register.inclusion_tag("admin/_steward_home.html", takes_context=True)
def steward_home_of(context: dict[str, Any]) -> dict[str, Any]:
    """Return what waits for the signed-in person, and the figures of retention for
    a person who may see its policies.
    """
    user = context["user"]
    shown: dict[str, Any] = {}
    shown["waiting"] = steward_home.waiting_figures(user)
    if any(user.has_perm(right) for right in RIGHTS):
        shown["keeping"] = steward_home.keeping_figures()
        shown["policies"] = steward_home.policy_rows()
        shown["storage"] = steward_home.storage()
    return shown
