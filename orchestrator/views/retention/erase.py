"""The page that erases the values of a run: the values that would be erased, the runs
that inherited them, and the run's key to be typed as a confirmation.
"""

from typing import Any

from django.apps import apps
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.text import get_text_list
from django.views.decorators.http import require_http_methods

from approvals.views.page import may_post, single_fields, visible_run
from checkpoints import retention
from orchestrator.engine.errors import CountersignError, InvalidValue
from orchestrator.views.act_page import ActPage


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def erase_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Show what an erasure would do now; once posted with the run's key typed, queue
    it. `paths` has one path per line.
    """
    run = visible_run(request.user, ref)
    may = may_post(request, run, "manage_retention", refusal="refused_erase")
    return _ErasePage(request, run, may=may).answer()


class _ErasePage(ActPage):
    template = "orchestrator/erase.html"
    longest_reason = 10_000

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "paths": "\n".join(self._paths()),
            "forks": "forks" in self.request.POST,
        }
        try:
            return facts | self._plan_facts()
        except CountersignError as error:
            return facts | {"refused": f"{error.message}."}

    def _plan_facts(self) -> dict[str, Any]:
        """Return the plan of the erasure, for a person who may erase."""
        if not self.may:
            return {"plan": None, "counts": (), "summary": ""}
        # The plan is of the whole run: a path that is refused is named above it, and
        # the rest of the page still stands.
        plan = retention.plan_erasure(self.run.id)
        return {
            "plan": plan,
            "counts": _counts_by_table_name(plan.counts),
            "summary": _summary(plan.counts),
        }

    def act(self) -> HttpResponse:
        typed_key = self.request.POST.get("confirm", "").strip()
        # Nothing brings erased values back, so a click alone is not enough.
        if typed_key != self.run.key:
            raise InvalidValue(f"Type {self.run.key} to confirm")
        retention.begin_erasure(
            self.run.id,
            self._paths() or None,
            "forks" in self.request.POST,
            self.reason,
            by=self.request.user,
        )
        text = "The erasure has begun. This page says when it has ended."
        messages.success(self.request, text)
        return redirect("run", self.run.id)

    def _paths(self) -> list[str]:
        """Return the paths to erase, none for the whole run. A link may name them."""
        request = self.request
        linked = request.GET.get("paths", "")
        text = request.POST.get("paths", linked)
        lines = [line.strip() for line in text.splitlines()]
        return [line for line in lines if line]


THINGS = {
    "checkpoint": ("checkpoints_checkpoint",),
    "proposed write": ("checkpoints_pendingwrite",),
    "decision": ("approvals_decision",),
    "result": ("checkpoints_taskresult", "checkpoints_lateresult"),
    "file": ("uploaded files",),
}
"""The places that a steward thinks of, each with the tables and sweeps that a plan
counts for it.
"""


def _summary(counts: dict[str, int]) -> str:
    """Return a summary of where the values are, such as "11 checkpoints, 4 decisions
    and 1 file".
    """
    words: list[str] = []
    for thing, places in THINGS.items():
        count = sum(counts.get(place, 0) for place in places)
        if not count:
            continue
        plural = "" if count == 1 else "s"
        words.append(f"{count:,} {thing}{plural}")
    return get_text_list(words, "and") or "the run alone"


def _counts_by_table_name(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return how many rows or files of each kind hold values of the run. A table is
    shown by the plural name of its rows.
    """
    names_by_table: dict[str, str] = {}
    for model in apps.get_models():
        names_by_table[model._meta.db_table] = str(model._meta.verbose_name_plural)
    named_counts: list[tuple[str, int]] = []
    for table, count in counts.items():
        # Counts that are not of a table, such as uploaded files, are named already.
        name = names_by_table.get(table, table)
        named_counts.append((name, count))
    return named_counts
