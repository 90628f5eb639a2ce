"""The challenge that a browser needs to sign a posted review with a passkey: over exactly
the choices that were posted.
"""

from collections.abc import Mapping
from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse, JsonResponse

from approvals import reviews
from approvals.views.composed_review import review_of
from approvals.views.page import (
    LISTS,
    opens_payloads,
    posted_from_review,
    single_fields,
    visible_run,
)
from approvals.views.people.fresh_login import session_of
from approvals.views.posted_confirmation import site_of
from approvals.views.posted_review import as_posted, choices_posted, obstacle_to_signing
from approvals.views.unsigned_review import ANSWERS, sentence_of
from orchestrator.engine.errors import REFUSALS, CountersignError


@posted_from_review
@single_fields(repeated=LISTS)
@opens_payloads
def challenge_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Return the challenge over the posted choices, and the options with which it is
    signed, as JSON: {"challenge", "options"}. Nothing is signed. What stands in the way
    of signing is {"message"}, as the page would say it.
    """
    run = visible_run(request.user, ref)
    shown = review_of(
        run,
        request.user,
        drawing=as_posted(request.POST),
        seen=request.POST.getlist("seen"),
        opened=request.POST.getlist("write"),
    )
    chosen = choices_posted(request, shown)
    obstacle = obstacle_to_signing(shown, chosen, request.POST)
    if obstacle is not None:
        return _refusal(obstacle)
    try:
        challenge = reviews.passkey_challenge(
            run.id,
            [choice.decision() for choice in chosen.values()],
            by=cast(AbstractBaseUser, request.user),
            site=site_of(request),
            session=session_of(request),
            # The key of the form, which the signature uses too.
            idempotency_key=request.POST.get("key", "")[:200] or None,
        )
    except REFUSALS as error:
        return _refusal(error)
    return _answer(challenge, 200)


def _refusal(error: CountersignError) -> HttpResponse:
    facts = {"code": error.code, "message": sentence_of(error)}
    return _answer(facts, ANSWERS.get(type(error), 409))


def _answer(facts: Mapping[str, Any], status: int) -> HttpResponse:
    return JsonResponse(
        dict(facts), status=status, headers={"Cache-Control": "no-store"}
    )
