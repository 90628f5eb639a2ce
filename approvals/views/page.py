"""What every page shares: its frame (none for scripts that ask for parts), and what it says where it is not shown."""

from collections.abc import Callable, Collection, Sized
from functools import wraps
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.shortcuts import render as render_template
from django.urls import reverse

from approvals import permissions
from checkpoints import audit_log
from checkpoints.core.strict_json import NotStrict, refuse_repeated
from checkpoints.db.outage import RETRY_SECONDS
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import unreadable_reason
from orchestrator.engine.errors import AWAY, UNREADABLE, UnknownThing

View = Callable[..., HttpResponse]

FRAME = "orchestrator/base.html"
PARTS = "orchestrator/part.html"
MOST_NUMBER = 2**31 - 1


def render(
    request: HttpRequest, template: str, context: dict[str, Any], *, section: str = "", status: int = 200
) -> HttpResponse:
    """A page in the console's frame. `section` marks its place in the bar."""
    base = PARTS if request.headers.get("X-Fragment") else FRAME
    answer = render_template(request, template, {**context, "base": base, "section": section}, status=status)
    # Pages show what this person may see now; a shared computer's cache must not keep them.
    answer.headers["Cache-Control"] = "no-store" if request.method == "POST" else "private, no-cache"
    answer.headers["Vary"] = "Cookie, X-Fragment"
    return answer


def visible_run(user: Any, ref: str | UUID) -> Run:
    """The run of that id or key, or 404 for whoever may not see it."""
    try:
        return permissions.visible_run(user, ref)
    except UnknownThing as error:
        raise Http404(error.message) from error


LISTS = frozenset({"write", "group", "seen"})
"""What the form of a review says several times: its writes, their groups, and the requests that stand on it."""


def single_fields(*, repeated: Collection[str] = ()) -> Callable[[View], View]:
    """A page whose posted form says each thing once: one that says it twice, in fields or files, is refused by name.

    Else the last would count, which a proxy or a person reading the first did not see. `repeated` are lists.
    """

    def wrap(view: View) -> View:
        @wraps(view)
        def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return answer_to_repeated(request, repeated) or view(request, *args, **kwargs)

        return page

    return wrap


def answer_to_repeated(request: HttpRequest, repeated: Collection[str]) -> HttpResponse | None:
    """The page that refuses a form in which a field or file but these stands twice, and names it; else None."""
    given: list[tuple[str, Sized]] = [*request.POST.lists(), *request.FILES.lists()]
    try:
        refuse_repeated(name for name, each in given if name not in repeated for _ in range(len(each)))
    except NotStrict as error:
        return error_page(request, "Sent twice", f"The field {error}. Nothing was changed.", status=400)
    return None


def read_number(text: str) -> int | None:
    """The whole number that an address says, in plain digits and no larger than a column holds; else None."""
    # The length first: Python reads no number of thousands of digits.
    plain = text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MOST_NUMBER
    return int(text) if plain else None


def needs_role(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A page about the installation rather than about a run: who has no role at all does not learn that it is there."""

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not permissions.has_role(request.user):
            raise Http404("this page is for people with a role")
        return view(request, *args, **kwargs)

    return page


CARRIED = ("csrfmiddlewaretoken", "username", "password", "next")
"""Fields of the sign-in form itself: what was posted under these names is not carried along."""


def posted_from_review(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """What a review posts to. Whoever opens the address is led to the review; whose session has ended signs in there,
    with what was chosen carried along.
    """

    @wraps(view)
    def page(request: HttpRequest, ref: str) -> HttpResponse:
        if request.method != "POST":
            return redirect("review", ref)
        if request.user.is_authenticated:
            return view(request, ref)
        if request.headers.get("X-Fragment"):
            return HttpResponse(status=401)
        context = {"next": reverse("review", args=[ref]), "review": ref, "carried": carried(request)}
        return render(request, "orchestrator/login.html", context, status=401)

    return page


def carried(request: HttpRequest) -> list[tuple[str, str]]:
    """What a review posted, as hidden fields of the sign-in form."""
    return [(name, str(one)) for name, all_ in request.POST.lists() if name not in CARRIED for one in all_]


def opens_payloads(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A page that cannot do without payloads: where one cannot be opened, or is not what was written, it says which."""

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except UNREADABLE as error:
            text = f"{error.facts.get('row', 'A record')} {unreadable_reason(error)}. Nothing was changed."
            answer = error_page(request, "This cannot be shown", text, status=503 if isinstance(error, AWAY) else 409)
            if answer.status_code == 503:
                answer.headers["Retry-After"] = str(RETRY_SECONDS)
            return answer

    return page


def error_page(request: HttpRequest, title: str, text: str, *, status: int) -> HttpResponse:
    """A page that says what went wrong, and what became of it."""
    return render(request, "orchestrator/error.html", {"title": title, "text": text}, status=status)


def may_post(request: HttpRequest, run: Run, right: str, *, refusal: str) -> bool:
    """Whether this person has the right to act on a run. Who posts without it leaves an audit line `refusal`, which
    names the right.
    """
    may = permissions.may(request.user, right)
    if request.method == "POST" and not may:
        audit_log.record(refusal, actor=request.user, run=run.id, graph=run.graph, right=right)
    return may
