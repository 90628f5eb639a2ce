"""A page that makes a run makes it once: its address holds a signed token, which names
the run that it will make.

A person who goes back or reloads opens the same address, so nothing depends on what the
browser remembers of a form. A link to the page holds no token: it leads to an address
with a new one.
"""

from urllib.parse import urlencode
from uuid import UUID

from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from checkpoints.core.ids import uuid7
from checkpoints.ledger.removed_keys import was_removed
from orchestrator.engine.errors import InvalidValue


def led_to_token(request: HttpRequest, **changed: object) -> HttpResponse | None:
    """Return a redirect to the same address with a new token and the `changed`
    parameters; None if the address has a valid token.
    """
    try:
        _opened(request, request.GET.get("token", ""))
    except InvalidValue:
        return at_address(request, token=new_token(request), **changed)
    return None


def at_address(request: HttpRequest, **changed: object) -> HttpResponse:
    """Return a redirect to the same address with these parameters changed."""
    answer = redirect(f"{request.path}?{urlencode({**request.GET.dict(), **changed})}")
    # Kept by a browser, it would lead each link to a token that made its run already.
    answer.headers["Cache-Control"] = "no-store"
    return answer


def new_token(request: HttpRequest) -> str:
    """Return a token that names a run which does not exist yet. It is valid for the
    person who opened the page.
    """
    content = [str(uuid7()), request.user.pk]
    return signing.dumps(content, salt=_salt(request))


def token_of(request: HttpRequest) -> str:
    """Return the token of this page, as it was posted or else as its address says; ""
    if there is none.
    """
    return request.POST.get("token") or request.GET.get("token", "")


def token_to_show(request: HttpRequest) -> str:
    """Return the token of this page if it can make a run, else a new one, so that the
    page can be posted again.
    """
    try:
        id_to_make(request)
    except InvalidValue:
        return new_token(request)
    return token_of(request)


def id_to_make(request: HttpRequest) -> UUID:
    """Return the id that the page's token names. Raises `InvalidValue` if the token is
    not valid, or if the run that it made was removed since. One query.
    """
    run_id = _opened(request, token_of(request))
    # Made again, the run would do everything that it did a second time.
    if was_removed(run_id):
        raise InvalidValue(
            "the run that this page made was removed by retention;"
            " press again to make another",
            path="token",
        )
    return run_id


def _salt(request: HttpRequest) -> str:
    """Return the purpose of the token: it is valid on one kind of page only."""
    name: str | None = ""
    if request.resolver_match:
        name = request.resolver_match.url_name
    return f"countersign.{name}"


def _opened(request: HttpRequest, token: str) -> UUID:
    """Return the id in a token. Raises `InvalidValue` if it was not signed here for
    this page, or for another person.
    """
    try:
        text, person = signing.loads(token, salt=_salt(request))
    except (signing.BadSignature, ValueError) as error:
        message = "this page is not from here; open it again"
        raise InvalidValue(message, path="token") from error
    if person != request.user.pk:
        message = "this page was opened by somebody else; open it again"
        raise InvalidValue(message, path="token")
    return UUID(text)
