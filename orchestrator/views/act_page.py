"""The page of one act on a run: it shows what the act would do and asks for a reason;
once posted, the act is done.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse

from approvals.views.page import render
from checkpoints.models import Run
from orchestrator.engine.errors import REFUSALS, CountersignError


class ActPage(ABC):
    """One request for the page of an act. A subclass names the template, and implements
    `facts` and `act`.

    `may`: the person has the right to act, as `may_post` returned it. Without the right
    the page can be looked at, and posting is answered with 403.
    """

    template: ClassVar[str]
    longest_reason: ClassVar[int | None] = None
    """Characters to which a reason is cut before it is shown again; None: not cut."""

    def __init__(self, request: HttpRequest, run: Run, *, may: bool) -> None:
        self.request = request
        self.run = run
        self.may = may
        self.typed_reason = request.POST.get("reason", "")
        self.reason = self.typed_reason.strip()

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what the template shows beside the run, the right and the reason."""

    @abstractmethod
    def act(self) -> HttpResponse:
        """Do what was posted and return the answer. Raises `InvalidValue` for a form
        that lacks something, and the refusals of the verb.
        """

    def answer(self) -> HttpResponse:
        """Return the page; once posted with the right, the answer of the act or the
        page with its refusal.
        """
        # Looking is allowed to everyone who may see the run.
        if self.request.method != "POST":
            return self.page()
        if not self.may:
            return self.page(status=403)
        try:
            return self.act()
        except REFUSALS as error:
            return self.refused(error)

    def refused(self, error: CountersignError) -> HttpResponse:
        """Return the page with the reason why nothing was done."""
        return self.page(status=422, message=f"{error.message}.")

    def page(self, *, status: int = 200, message: str = "") -> HttpResponse:
        context = {
            "run": self.run,
            "may": self.may,
            "message": message,
            "reason": self.typed_reason[: self.longest_reason],
            **self.facts(),
        }
        return render(
            self.request, self.template, context, section="runs", status=status
        )
