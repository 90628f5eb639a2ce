"""Compressed answers; answers of pages and API to outages, to addresses that no database
can compare, and to forms of the Django admin that repeat a field; and the acting user,
for the audit log.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import DataError, NotSupportedError
from django.forms import Field, MultipleHiddenInput
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

from approvals.views.page import answer_to_repeated
from orchestrator import page_policy
from orchestrator.account_changes import acting
from orchestrator.api import problems
from orchestrator.views.errors import bad_request, unavailable

_OUR_PACKAGES = frozenset({"orchestrator", "approvals", "checkpoints"})
_INLINE = re.compile(r"^.+-\d+-")
"""The beginning of an inline's field names: its prefix and the number of its row."""
_INCOMPARABLE = (ValueError, TypeError, OverflowError, DataError, NotSupportedError)
"""Errors of Django, a driver or a database for a value that a column cannot be compared
with: a year or address that does not exist, a number beyond each integer, a lookup that
this database does not have.
"""
_UNREADABLE_LOOKUPS = ("__range", "__regex", "__iregex")
"""The admin reads no pair from an address, and a pattern may be none, or may occupy the
database for hours.
"""


class Compression(GZipMiddleware):
    """Compresses pages and answers of the API, but none that is sent while it is made:
    an event must not wait for the next one, and files are sent as they are.

    The length of what is compressed reveals nothing of the secrets in a page: Django
    masks the token of a form again in each answer, and adds random bytes.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return the answer, compressed where the browser accepts it."""
        if response.streaming:
            return response
        return super().process_response(request, response)


class Outages:
    """Answers 503 with `Retry-After` if the database, a disk or the place of payloads
    does not serve now, and 400 to a page's address with a NUL character, which
    PostgreSQL would not even compare.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(
        self,
        request: HttpRequest,
        view: Any,
        args: Any,
        kwargs: dict[str, Any],
    ) -> HttpResponse | None:
        """Return 400 for a NUL character in the address of a page, else None."""
        # The API's own fields refuse NUL, naming the field.
        if "api" in getattr(request.resolver_match, "namespaces", ()):
            return None
        for text in _texts_of_address(request, kwargs):
            if "\x00" in str(text):
                return bad_request(request, ValueError("a NUL character"))
        return None

    def process_exception(
        self,
        request: HttpRequest,
        error: Exception,
    ) -> HttpResponse | None:
        """Return a page for an outage; for a caller of the API a problem. None for a
        defect, which is to be seen as one.
        """
        page = unavailable(request, error)
        if page is None or request.resolver_match is None:
            return page
        if "api" not in request.resolver_match.namespaces:
            return page
        refusal = problems.answer(error)
        if refusal is None:
            return None
        wait = {"Retry-After": page.headers["Retry-After"]}
        return JsonResponse(
            refusal.data, status=503, headers=wait, content_type=problems.MEDIA_TYPE
        )


def _texts_of_address(request: HttpRequest, kwargs: dict[str, Any]) -> Iterator[Any]:
    """Yield the parameters of an address, and the names and values of its query."""
    yield from kwargs.values()
    for name in request.GET:
        yield name
        yield from request.GET.getlist(name)


class PagePolicy:
    """Adds a Content-Security-Policy to each page of ours that has none yet, even among
    the pages of another project.
    """

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
    model_admin = getattr(view, "model_admin", None)
    view_class = getattr(view, "view_class", None)
    # The admin's views are functions of Django; only the `ModelAdmin` shows whose they
    # are.
    answering = model_admin or view_class or view
    module = getattr(answering, "__module__", "")
    package, _, _ = module.partition(".")
    return package in _OUR_PACKAGES


class Acting:
    """Attributes changes of accounts, groups and permissions to the user whose request
    makes them, for the audit log.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Read only when something changes: a view may set another user, as the API does
        # for a token.
        with acting(lambda: getattr(request, "user", None)):
            return self._get_response(request)


class AdminForms:
    """Answers 400 to a form of the Django admin that repeats a field, naming it: else
    the last value would count. And to an address that names an object by a field
    without a name, or compares a column with a value that it cannot hold, on which the
    admin fails.

    Lists may come several times: the ticked rows of a list, many-to-many fields, and
    fields with a widget for several values.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(
        self,
        request: HttpRequest,
        view: Any,
        args: Any,
        kwargs: dict[str, Any],
    ) -> HttpResponse | None:
        """Return 400 before the view is called, and so before anything is changed."""
        if "admin" not in getattr(request.resolver_match, "app_names", ()):
            return None
        # The admin takes it from the form, or else from the address.
        to_fields = (
            request.GET.get("_to_field"),
            request.POST.get("_to_field"),
        )
        if "" in to_fields:
            return bad_request(request, ValueError("no field is called nothing"))
        if _has_unreadable_lookup(request):
            error = ValueError("no range and no pattern is read from an address")
            return bad_request(request, error)
        if request.method != "POST":
            return None
        lists = _lists_of(getattr(view, "model_admin", None))
        repeatable = {name for name in request.POST if _INLINE.sub("", name) in lists}
        return answer_to_repeated(request, repeatable)

    def process_exception(
        self,
        request: HttpRequest,
        error: Exception,
    ) -> HttpResponse | None:
        """Return 400 for a list filtered by a value that its column cannot be compared
        with; None for a defect.
        """
        if not isinstance(error, _INCOMPARABLE) or request.resolver_match is None:
            return None
        model_admin = getattr(request.resolver_match.func, "model_admin", None)
        if not _filtered_columns(request, model_admin):
            return None
        return bad_request(request, error)


def _filtered_columns(request: HttpRequest, model_admin: Any) -> set[str]:
    """Return the columns of this `ModelAdmin` that the address filters by."""
    if model_admin is None:
        return set()
    columns: set[str] = set()
    named: set[str] = set()
    for field in model_admin.model._meta.concrete_fields:
        columns.add(field.name)
        columns.add(field.attname)
    for name in request.GET:
        column, _, _ = name.partition("__")
        named.add(column)
    return columns & named


def _has_unreadable_lookup(request: HttpRequest) -> bool:
    """Return whether a parameter compares by a range or a pattern."""
    return any(name.endswith(_UNREADABLE_LOOKUPS) for name in request.GET)


def _lists_of(model_admin: Any) -> set[str]:
    """Return the names of the fields that a form of this `ModelAdmin` may repeat; those
    of inlines without their prefix.
    """
    repeatable = {ACTION_CHECKBOX_NAME}
    if model_admin is None:
        return repeatable
    # Both bars of actions are sent, with the one that counts as `index`.
    if model_admin.actions_on_top and model_admin.actions_on_bottom:
        repeatable |= {"action", "select_across"}
    for admin in (model_admin, *model_admin.inlines):
        repeatable |= {field.name for field in admin.model._meta.many_to_many}
        for name, field in admin.form.base_fields.items():
            if _takes_several(field):
                repeatable.add(name)
    return repeatable


def _takes_several(field: Field) -> bool:
    if isinstance(field.widget, MultipleHiddenInput):
        return True
    return getattr(field.widget, "allow_multiple_selected", False)
