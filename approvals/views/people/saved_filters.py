"""The filters of the inbox that a person has kept under a name, and the address to which
their forms post. A filter is the query of an address: it gives no right.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals.models import SavedFilter
from approvals.views.inbox import filter_query
from approvals.views.page import single_fields
from checkpoints.core.arguments import checked_text
from orchestrator.engine.errors import REFUSALS, InvalidValue

LONGEST_NAME = 60
MOST = 20
"""The most filters of one person."""


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def saved_filters_page(request: HttpRequest) -> HttpResponse:
    """Keep a filter of the inbox under a name, or remove one, and lead to the inbox. A
    person who had to sign in first arrives by GET, without what was posted.
    """
    if request.method != "POST":
        return redirect("inbox")
    query = filter_query(request.POST)
    act = _ACTS.get(request.POST.get("act", ""))
    try:
        if act is None:
            raise InvalidValue("“act” is keep or remove", path="act")
        messages.success(request, act(request.user, request.POST, query))
    except REFUSALS as error:
        messages.error(request, f"Nothing was changed: {error.message}.")
    return redirect(f"{reverse('inbox')}?{query}")


def _keep(user: Any, posted: Mapping[str, str], query: str) -> str:
    name = posted.get("name", "").strip()
    checked_text(name, "name", most=LONGEST_NAME)
    if not name:
        raise InvalidValue("a filter has a name", path="name")
    with transaction.atomic():
        # Two that are kept at once wait for each other here.
        accounts = get_user_model()._default_manager.filter(pk=user.pk)
        list(accounts.select_for_update(no_key=True).values_list("pk"))
        filters = SavedFilter.objects.filter(user=user.pk)
        # One of that name is replaced, so it needs no room.
        if filters.exclude(name=name).count() >= MOST:
            raise InvalidValue(f"nobody has more than {MOST} filters", path="name")
        SavedFilter.objects.update_or_create(
            user_id=user.pk, name=name, defaults={"query": query}
        )
    return "The filter is kept."


def _remove(user: Any, posted: Mapping[str, str], query: str) -> str:
    name = posted.get("name", "")
    checked_text(name, "name", most=LONGEST_NAME)
    count, _ = SavedFilter.objects.filter(user=user.pk, name=name).delete()
    if not count:
        raise InvalidValue("there is no filter of that name", path="name")
    return "The filter is removed."


_ACTS: Mapping[str, Callable[[Any, Mapping[str, str], str], str]] = {
    "keep": _keep,
    "remove": _remove,
}
