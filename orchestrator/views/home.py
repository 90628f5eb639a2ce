"""Signing in, the way in, and the theme."""

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
from approvals.views.draft import keep_after_sign_in
from approvals.views.page import LISTS, carried, single_fields
from orchestrator.models import Preference
from orchestrator.templatetags.console import THEME_COOKIE, THEMES
from orchestrator.views.account import keep_shortcuts

YEAR = 365 * 24 * 3600


@method_decorator(single_fields(repeated=LISTS), name="post")  # type: ignore[arg-type]  # its stubs know base responses only
class SignIn(LoginView):
    """Django's own, in our look. It brings the person's theme along, and what he had chosen in a review when his
    session ended.
    """

    template_name = "orchestrator/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        review = self.request.POST.get("review", "")
        more = {"review": review, "carried": carried(self.request)} if review else {}
        return super().get_context_data(**kwargs) | more

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        if self.request.POST.get("review"):
            keep_after_sign_in(form.get_user(), self.request.POST["review"], self.request.POST)
        preference = Preference.objects.filter(user=form.get_user()).first()
        if preference is not None:
            _keep_theme(answer, preference.theme)
        keep_shortcuts(answer, on=preference is None or preference.shortcuts)
        return answer


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """To the reviews if something waits for this person, else to the runs."""
    return redirect("inbox" if inbox.waiting_for(request.user).exists() else "runs")


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def theme(request: HttpRequest) -> HttpResponse:
    """Keep the chosen theme with the account, and in a cookie so that the first paint is right. Whoever had to
    sign in first arrives by GET, without his choice.
    """
    chosen = request.POST.get("theme", "")
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = "/"
    answer = HttpResponse(status=204) if request.headers.get("X-Fragment") else HttpResponseRedirect(target)
    if chosen in THEMES:
        Preference.objects.update_or_create(user_id=int(request.user.pk or 0), defaults={"theme": chosen})
        _keep_theme(answer, chosen)
    return answer


def _keep_theme(answer: HttpResponse, chosen: str) -> None:
    answer.set_cookie(
        THEME_COOKIE, chosen, max_age=YEAR, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE, httponly=True
    )
