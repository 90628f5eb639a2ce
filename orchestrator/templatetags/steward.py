"""The head of the admin's first page."""

from typing import Any

from django import template

from orchestrator.display import steward_home

register = template.Library()
RIGHTS = ("checkpoints.manage_retention", "checkpoints.view_retentionpolicy")


@register.inclusion_tag("admin/_steward_home.html", takes_context=True)
def steward_home_of(context: dict[str, Any]) -> dict[str, Any]:
    """Show what waits for whoever is signed in, as far as he may see it."""
    user = context["user"]
    shown: dict[str, Any] = {"waiting": steward_home.waiting_figures(user)}
    if any(user.has_perm(right) for right in RIGHTS):
        shown["keeping"] = steward_home.keeping_figures()
        shown["policies"] = steward_home.policy_rows()
        shown["storage"] = steward_home.storage()
    return shown
