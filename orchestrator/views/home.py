"""Signing in, the first page, and the theme."""

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_safe

from approvals import inbox
from approvals.views.page import LISTS, carried, single_fields
from approvals.views.posts.draft import keep_after_sign_in
from orchestrator.models import Preference
from orchestrator.templatetags.console import THEME_COOKIE, THEMES
from orchestrator.views.account import keep_shortcuts

YEAR = 365 * 24 * 3600


@method_decorator(single_fields(repeated=LISTS), name="post")  # type: ignore[arg-type]  # its stubs know base responses only
class SignIn(LoginView):
    """Django's sign-in page, in the console's look. It restores the person's theme, and
    the choices of a review during which the session ended.
    """

    template_name = "orchestrator/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        review = self.request.POST.get("review", "")
        if review:
            context["review"] = review
            context["carried"] = carried(self.request)
        return context

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        user = form.get_user()
        review = self.request.POST.get("review")
        if review:
            keep_after_sign_in(user, review, self.request.POST)
        restore_preferences(answer, user)
        return answer


def restore_preferences(answer: HttpResponse, user: Any) -> None:
    """Set the cookies of a person who has just signed in to what they chose.

    The cookies are the browser's: another person may have used it before.
    """
    preference = Preference.objects.filter(user=user).first()
    if preference is not None:
        _keep_theme(answer, preference.theme)
    keep_shortcuts(answer, on=preference is None or preference.shortcuts)


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the reviews if any waits for this person, else to the runs."""
    has_reviews = inbox.waiting_for(request.user, first=1).exists()
    return redirect("inbox" if has_reviews else "runs")


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def theme(request: HttpRequest) -> HttpResponse:
    """Keep the chosen theme with the account, and in a cookie so that the first paint
    is right. A person who had to sign in first arrives by GET, without the choice.
    """
    chosen = request.POST.get("theme", "")
    answer = _answer_to_theme(request)
    if chosen in THEMES:
        Preference.objects.update_or_create(
            user_id=int(request.user.pk or 0), defaults={"theme": chosen}
        )
        _keep_theme(answer, chosen)
    return answer


def _answer_to_theme(request: HttpRequest) -> HttpResponse:
    """Return an empty answer for a script, else a redirect back to the page."""
    if request.headers.get("X-Fragment"):
        return HttpResponse(status=204)
    # An address elsewhere would make the page a redirector for phishing.
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = "/"
    return HttpResponseRedirect(target)


def _keep_theme(answer: HttpResponse, chosen: str) -> None:
    answer.set_cookie(
        THEME_COOKIE,
        chosen,
        max_age=YEAR,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
    )
