"""The parts that all pages share: the frame (none for scripts that fetch parts), and
the answers if a page cannot be shown.
"""

from collections.abc import Callable, Collection, Sized
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.shortcuts import render as render_template
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from approvals import permissions
from checkpoints.audit import lines as audit_log
from checkpoints.core.strict_json import NotStrict, refuse_repeated
from checkpoints.db.outage import RETRY_SECONDS
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import unreadable_reason
from orchestrator.engine.errors import (
    AWAY,
    UNREADABLE,
    CountersignError,
    InvalidValue,
    UnknownThing,
)

View = Callable[..., HttpResponse]

FRAME = "orchestrator/base.html"
PARTS = "orchestrator/part.html"
MOST_NUMBER = 2**31 - 1


def render(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    *,
    section: str = "",
    status: int = 200,
) -> HttpResponse:
    """Return a page in the console's frame. `section` marks its place in the bar."""
    base = PARTS if request.headers.get("X-Fragment") else FRAME
    answer = render_template(
        request, template, {**context, "base": base, "section": section}, status=status
    )
    # Pages show what this person may see now; a shared computer's cache must not keep
    # them.
    is_post = request.method == "POST"
    answer.headers["Cache-Control"] = "no-store" if is_post else "private, no-cache"
    # One address answers a script with a part, and a person with the whole page.
    answer.headers["Vary"] = "Cookie, X-Fragment, X-Parts"
    return answer


def visible_run(user: Any, ref: str | UUID, *, with_input: bool = False) -> Run:
    """Return the run with that id or key, as `permissions.visible_run` does. Raises
    `Http404` if the user may not see it.
    """
    try:
        return permissions.visible_run(user, ref, with_input=with_input)
    except UnknownThing as error:
        raise Http404(error.message) from error


LISTS = frozenset({"write", "group", "seen", "opened"})
"""The fields that the form of a review repeats: its writes, their groups, the requests
that it shows, and the writes of which nothing is folded.
"""


def single_fields(*, repeated: Collection[str] = ()) -> Callable[[View], View]:
    """Decorate a page so that it refuses a posted form in which a field or file stands
    twice, and names it. `repeated` are the fields that are lists.

    Otherwise the last one would count, while a proxy or a person may have read the
    first.
    """

    def wrap(view: View) -> View:
        @wraps(view)
        def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            refusal = answer_to_repeated(request, repeated)
            return refusal or view(request, *args, **kwargs)

        return page

    return wrap


def answer_to_repeated(
    request: HttpRequest,
    repeated: Collection[str],
) -> HttpResponse | None:
    """Return the page that refuses a form in which a field or file stands twice, except
    for `repeated`, and names it; else None.
    """
    fields: list[tuple[str, Sized]] = [*request.POST.lists(), *request.FILES.lists()]
    names: list[str] = []
    for name, values in fields:
        if name not in repeated:
            names += [name] * len(values)
    try:
        refuse_repeated(names)
    except NotStrict as error:
        return error_page(
            request,
            "Sent twice",
            f"The field {error}. Nothing was changed.",
            status=400,
        )
    return None


def read_number(text: str) -> int | None:
    """Return the whole number of an address, in plain digits and no larger than a
    column holds; else None.
    """
    # The length first: Python reads no number of thousands of digits.
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    number = int(text)
    return number if number <= MOST_NUMBER else None


def read_page(request: HttpRequest) -> int:
    """Return the number of the requested page of a list, the first being 1. Raises
    `InvalidValue`.
    """
    text = request.GET.get("page", "")
    number = read_number(text) if text else 1
    if not number:
        raise InvalidValue(
            "“page” is a number from 1 on; follow the links of the list", path="page"
        )
    return number


def read_moment(text: str) -> datetime | None:
    """Return the moment that an address names, with its time zone; None if it names
    none.
    """
    try:
        moment = parse_datetime(text)
        if moment is None or not timezone.is_aware(moment):
            return None
        # The first and the last moments may not exist in the database's time zone.
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def read_position(text: str) -> tuple[datetime | None, UUID | None]:
    """Return the moment and the id of the row after which a page of a list begins; None
    for both if the address names no such row.
    """
    moment_text, _, id_text = text.partition("~")
    moment = read_moment(moment_text)
    try:
        row = UUID(id_text)
    except ValueError:
        return None, None
    if moment is None:
        return None, None
    return moment, row


def refuses_unreadable_filters(view: View) -> View:
    """Decorate a list so that it answers with an error page if its address has a filter
    or page number that no list can have.
    """

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except InvalidValue as error:
            return error_page(
                request, "This filter cannot be read", f"{error.message}.", status=400
            )

    return page


def needs_role(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a page about the installation rather than about a run: people without
    any role do not learn that it exists.
    """

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not permissions.has_role(request.user):
            raise Http404("this page is for people with a role")
        return view(request, *args, **kwargs)

    return page


CARRIED = ("csrfmiddlewaretoken", "username", "password", "next")
"""Fields of the sign-in form itself: values posted under these names are not carried
along.
"""


def posted_from_review(
    view: Callable[..., HttpResponse],
) -> Callable[..., HttpResponse]:
    """Decorate a page that a review posts to. Opening its address leads to the review.
    A person whose session has ended gets the sign-in page, with the choices carried
    along.
    """

    @wraps(view)
    def page(request: HttpRequest, ref: str) -> HttpResponse:
        if request.method != "POST":
            return redirect("review", ref)
        if request.user.is_authenticated:
            return view(request, ref)
        # A script cannot show a sign-in page; its page says that the session has ended.
        if request.headers.get("X-Fragment"):
            return HttpResponse(status=401)
        context = {
            "next": reverse("review", args=[ref]),
            "review": ref,
            "carried": carried(request),
        }
        return render(request, "orchestrator/login.html", context, status=401)

    return page


def carried(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the posted fields of a review as hidden fields of the sign-in form."""
    fields: list[tuple[str, str]] = []
    for name, values in request.POST.lists():
        if name in CARRIED:
            continue
        for value in values:
            fields.append((name, str(value)))
    return fields


def opens_payloads(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a page that cannot do without payloads: if one cannot be decrypted, or
    is not what was written, the answer names it.
    """

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except UNREADABLE as error:
            return _unreadable_page(request, error)

    return page


def _unreadable_page(request: HttpRequest, error: CountersignError) -> HttpResponse:
    row = error.facts.get("row", "A record")
    text = f"{row} {unreadable_reason(error)}. Nothing was changed."
    # A storage that does not answer at the moment says nothing against the record.
    is_away = isinstance(error, AWAY)
    status = 503 if is_away else 409
    answer = error_page(request, "This cannot be shown", text, status=status)
    if is_away:
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def error_page(
    request: HttpRequest,
    title: str,
    text: str,
    *,
    status: int,
) -> HttpResponse:
    """Return a page with what went wrong, and what became of the request."""
    return render(
        request,
        "orchestrator/error.html",
        {"title": title, "text": text},
        status=status,
    )


def may_post(request: HttpRequest, run: Run, right: str, *, refusal: str) -> bool:
    """Return whether this person has the right to act on a run. Posting without it
    leaves an audit line `refusal`, which names the right.
    """
    may = permissions.may(request.user, right)
    # Opening the page is no attempt to act.
    if request.method == "POST" and not may:
        audit_log.record(
            refusal, actor=request.user, run=run.id, graph=run.graph, right=right
        )
    return may
