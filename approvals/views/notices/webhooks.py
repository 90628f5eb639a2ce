"""The pages of webhooks: all of them with a form for another, and one with what was
sent. For people who manage webhooks; for everybody else they do not exist.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.models import Envelope, Webhook, WebhookDelivery
from approvals.notice_rows import EVENTS
from approvals.views.page import render, single_fields
from approvals.webhooks import verbs as webhooks
from checkpoints.core.ids import uuid_of
from orchestrator.engine.errors import REFUSALS, CountersignError, InvalidValue

SHOWN = 50
"""The most deliveries on the page, the newest first."""
SHOWN_CALLBACKS = 20
"""The most callbacks of approvals on the page, the newest first."""
WORDS = {
    "request.opened": "A review waits for people",
    "request.reminded": "A review still waits for people",
    "request.escalated": "A review asks others too",
    "request.came_back": "A review came back",
    "request.reopened": "A review was re-opened under another policy",
    "request.commented": "Somebody commented on a review",
    "request.settled": "A review was decided",
    "request.outcome_reported": "What was approved did not come off",
    "request.expired": "A review was closed by its deadline",
    "request.withdrawn": "A review was withdrawn",
    "run.stopped": "What came of it: a run in which people decided ended or stopped",
    "run.completed": "A run was completed",
    "run.rejected": "A run ended, for people rejected what it proposed",
    "run.cancelled": "A run was cancelled",
    "run.failed": "A run failed",
    "run.unknown": "A run stopped: nobody knows whether an effect happened",
    "run.incompatible": "A run stopped: it does not fit the new version of its graph",
    "run.tampered": "A run stopped: a row of it is not as it was sealed",
    "values.erased": "Values of a run were erased",
    "webhook.test": "A test",
}
"""Event -> what it says, in a sentence."""

View = Callable[..., HttpResponse]


def for_managers(view: View) -> View:
    """Decorate a page of webhooks: it does not exist for people who manage none."""

    @login_required
    @require_http_methods(["GET", "HEAD", "POST"])
    @single_fields(repeated={"events"})
    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not webhooks.may_manage(request.user):
            raise Http404("this page is for people who manage webhooks")
        return view(request, *args, **kwargs)

    return page


@for_managers
def webhooks_page(request: HttpRequest) -> HttpResponse:
    """Show the webhooks, and add another. The answer to that shows its secret, once."""
    if request.method == "POST":
        return _added(request)
    return _list(request)


def _added(request: HttpRequest) -> HttpResponse:
    graphs = request.POST.get("graphs", "").split()
    try:
        webhook, secret = webhooks.add_webhook(
            request.POST.get("url", ""),
            events=request.POST.getlist("events"),
            graphs=graphs,
            envelope=request.POST.get("envelope", Envelope.STANDARD),
            by=request.user,
        )
    except REFUSALS as error:
        return _list(request, message=error.message, status=422)
    # No redirect, because the secret is kept nowhere from where a next page could show
    # it.
    return _list(request, added=webhook, secret=secret, status=201)


def _list(
    request: HttpRequest,
    *,
    message: str = "",
    added: Webhook | None = None,
    secret: str = "",
    status: int = 200,
) -> HttpResponse:
    chosen = request.POST.getlist("events")
    context = {
        "webhooks": list(webhooks.visible_webhooks(request.user)),
        "callbacks": list(webhooks.visible_callbacks(request.user)[:SHOWN_CALLBACKS]),
        "envelopes": Envelope.choices,
        "events": [(event, WORDS[event], event in chosen) for event in EVENTS],
        "message": message,
        "added": added,
        "secret": secret,
        # Refused input is shown again.
        "typed": request.POST if message else {},
    }
    return render(
        request, "approvals/webhooks.html", context, section="workers", status=status
    )


@for_managers
def webhook_page(request: HttpRequest, webhook: UUID) -> HttpResponse:
    """Show a webhook with what was sent, and do what its buttons say."""
    try:
        row = webhooks.visible_webhook(request.user, webhook)
    except CountersignError as error:
        raise Http404(error.message) from error
    if request.method == "POST":
        return _acted(request, row)
    deliveries: list[tuple[WebhookDelivery, str]] = []
    for delivery in row.deliveries.select_related("notice")[:SHOWN]:
        deliveries.append((delivery, _words_of(delivery.notice.event)))
    context = {
        "webhook": row,
        "vouched_for": webhooks.is_vouched_for(row),
        "events": [_words_of(event) for event in row.events],
        "deliveries": deliveries,
    }
    return render(request, "approvals/webhook.html", context, section="workers")


def _words_of(event: str) -> str:
    return WORDS.get(event, event)


def _require_confirmed(request: HttpRequest) -> None:
    if request.POST.get("confirm") != "yes":
        raise InvalidValue("confirm that it is to be removed", path="confirm")


def _acted(request: HttpRequest, webhook: Webhook) -> HttpResponse:
    try:
        messages.success(request, _act(request, webhook))
    except REFUSALS as error:
        messages.error(request, f"Nothing was changed: {error.message}.")
        return redirect("webhook", webhook.id)
    if request.POST.get("do") == "remove":
        return redirect("webhooks")
    return redirect("webhook", webhook.id)


def _act(request: HttpRequest, webhook: Webhook) -> str:
    """Do what was posted, and return what was done in a sentence."""
    act = request.POST.get("do", "")
    if act == "test":
        webhooks.send_test(webhook.id, by=request.user)
        return "A test is on its way."
    if act in ("on", "off"):
        webhooks.switch_webhook(webhook.id, active=act == "on", by=request.user)
        return f"The webhook is {act}."
    if act == "remove":
        _require_confirmed(request)
        webhooks.remove_webhook(webhook.id, by=request.user)
        return "The webhook is removed."
    delivery = uuid_of(request.POST.get("delivery", ""), "delivery")
    webhooks.send_again(webhook.id, delivery, by=request.user)
    return "It is on its way again."
