"""What pages and API answer, wherever it comes up: to outages, to addresses that no database can compare, and to forms
of the Django admin that say a thing twice; and who acts, for the audit log.
"""

import re
from collections.abc import Callable
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import DataError, NotSupportedError
from django.forms import Field, MultipleHiddenInput
from django.http import HttpRequest, HttpResponse, JsonResponse

from approvals.views.page import answer_to_repeated
from orchestrator import page_policy
from orchestrator.account_changes import acting
from orchestrator.api import problems
from orchestrator.views.errors import bad_request, unavailable

_OUR_PACKAGES = frozenset({"orchestrator", "approvals", "checkpoints"})
_INLINE = re.compile(r"^.+-\d+-")
"""What the fields of an inline begin with: its prefix and the number of its row."""
_INCOMPARABLE = (ValueError, TypeError, OverflowError, DataError, NotSupportedError)
"""Errors of Django, a driver or a database for a value that a column cannot be compared with: no such year, no
address, a number beyond each integer, a lookup that this database has not.
"""
_UNREADABLE_LOOKUPS = ("__range", "__regex", "__iregex")
"""The admin reads no pair from an address, and a pattern may be none, or take the database for hours."""


class Outages:
    """503 with `Retry-After` where the database, a disk or the place of payloads does not serve now; 400 for a page's
    address with a NUL character, which PostgreSQL would not even compare.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponse | None:
        """The API's own fields refuse NUL, naming the field."""
        if "api" in getattr(request.resolver_match, "namespaces", ()):
            return None
        given = (*kwargs.values(), *(text for name in request.GET for text in (name, *request.GET.getlist(name))))
        odd = any("\x00" in str(text) for text in given)
        return bad_request(request, ValueError("a NUL character")) if odd else None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """A page; for whoever asked the API a problem. None for a defect, which is to be seen as one."""
        page = unavailable(request, error)
        if page is None or request.resolver_match is None or "api" not in request.resolver_match.namespaces:
            return page
        found = problems.answer(error)
        wait = {"Retry-After": page.headers["Retry-After"]}
        return found and JsonResponse(found.data, status=503, headers=wait, content_type=problems.MEDIA_TYPE)


class PagePolicy:
    """A Content-Security-Policy for each page of ours that has none yet, also among the pages of another project."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if _is_ours(request):
            response.headers.setdefault("Content-Security-Policy", page_policy.HEADER)
        return response


def _is_ours(request: HttpRequest) -> bool:
    """Return whether one of our views answered, or the admin of one of our models."""
    if request.resolver_match is None:
        return False
    view: Any = request.resolver_match.func
    answering = getattr(view, "model_admin", None) or getattr(view, "view_class", None) or view
    module = getattr(answering, "__module__", "")
    return module.partition(".")[0] in _OUR_PACKAGES


class Acting:
    """Who changes accounts, groups or permissions while his request is served is named in the audit log."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with acting(lambda: getattr(request, "user", None)):
            return self._get_response(request)


class AdminForms:
    """400 for a form of the Django admin that says a thing twice, naming it: else the last would count; and for an
    address that asks for an object by a field without a name, or compares a column with what it cannot hold, over
    which the admin stumbles.

    Lists may come several times: the ticked rows of a list, many-to-many fields, and fields with a widget for several.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponse | None:
        """Before the view, and so before anything is changed."""
        if "admin" not in getattr(request.resolver_match, "app_names", ()):
            return None
        if "" in (request.GET.get("_to_field"), request.POST.get("_to_field")):
            return bad_request(request, ValueError("no field is called nothing"))
        if _has_unreadable_lookup(request):
            return bad_request(request, ValueError("no range and no pattern is read from an address"))
        if request.method != "POST":
            return None
        lists = _lists_of(getattr(view, "model_admin", None))
        return answer_to_repeated(request, {name for name in request.POST if _INLINE.sub("", name) in lists})

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return 400 for a list filtered by a value that its column cannot be compared with; None for a defect."""
        if not isinstance(error, _INCOMPARABLE) or request.resolver_match is None:
            return None
        model_admin = getattr(request.resolver_match.func, "model_admin", None)
        return bad_request(request, error) if _filtered_columns(request, model_admin) else None


def _filtered_columns(request: HttpRequest, model_admin: Any) -> set[str]:
    """Return the columns of this `ModelAdmin` that the address compares with something."""
    if model_admin is None:
        return set()
    columns = {field.name for field in model_admin.model._meta.concrete_fields}
    columns |= {field.attname for field in model_admin.model._meta.concrete_fields}
    return columns & {name.partition("__")[0] for name in request.GET}


def _has_unreadable_lookup(request: HttpRequest) -> bool:
    """Return whether a parameter compares by a range or a pattern."""
    return any(name.endswith(_UNREADABLE_LOOKUPS) for name in request.GET)


def _lists_of(model_admin: Any) -> set[str]:
    """The names of fields that a form of this `ModelAdmin` may say several times; of inlines without their prefix."""
    found = {ACTION_CHECKBOX_NAME}
    if model_admin is None:
        return found
    if model_admin.actions_on_top and model_admin.actions_on_bottom:
        found |= {"action", "select_across"}  # both bars are sent, with the one that counts as `index`
    for one in (model_admin, *model_admin.inlines):
        found |= {field.name for field in one.model._meta.many_to_many}
        found |= {name for name, field in one.form.base_fields.items() if _takes_several(field)}
    return found


def _takes_several(field: Field) -> bool:
    return isinstance(field.widget, MultipleHiddenInput) or getattr(field.widget, "allow_multiple_selected", False)
