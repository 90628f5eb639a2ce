"""The page that settles unknown outcomes: a person states for each task whether it
happened. The two answers weigh the same, and each takes a reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.views.inbox import names_of
from approvals.views.page import (
    may_post,
    opens_payloads,
    single_fields,
    visible_run,
)
from checkpoints import versions
from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.core.visible_json import escaped, indented
from checkpoints.models import LateResult, Run, TaskResult
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.engine.errors import (
    CountersignError,
    InvalidValue,
    UnknownThing,
    WrongStatus,
)
from orchestrator.runs import unknown_outcomes
from orchestrator.views.act_page import ActPage


@dataclass(slots=True)
class Open:
    """A task whose outcome is unknown, as its panel shows it; with the typed answer
    when it is shown again.
    """

    row: TaskResult
    doc: str
    key: str
    going_on: str | None
    evidence: str
    error: str
    fault: SealFault | None
    answer: str = ""
    output: str = ""
    reason: str = ""
    message: str = ""

    @property
    def needs_risk(self) -> bool:
        """Return whether only the time that passed suggests that the attempt is over,
        so that a person must accept the risk of running it again.
        """
        return self.going_on == "maybe"

    @property
    def too_early(self) -> bool:
        """Return whether the attempt may still be acting, so that running it again is
        refused.
        """
        return self.going_on not in (None, "maybe")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
@opens_payloads
def settle_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Show every unknown outcome of the run; once posted, settle one of them."""
    run = visible_run(request.user, ref)
    may = may_post(request, run, "settle_task", refusal="refused_settle")
    return _SettlePage(request, run, may=may).answer()


class _SettlePage(ActPage):
    template = "orchestrator/settle.html"
    refusal = ""
    """Why the posted answer was refused; empty if none was."""

    def facts(self) -> dict[str, Any]:
        rows = unknown_outcomes.unknown_tasks(self.run)
        late_outputs = _late_outputs(self.run, rows)
        tasks: list[Open] = []
        for row, evidence in zip(rows, late_outputs, strict=True):
            task = _open(self.run, row, evidence)
            if self.refusal and row.task == self.request.POST.get("task"):
                self._show_answer_again(task)
            tasks.append(task)
        return {"tasks": tasks}

    def _show_answer_again(self, task: Open) -> None:
        task.answer = self.request.POST.get("answer", "")
        task.output = self.request.POST.get("output", "")
        task.reason = self.typed_reason
        task.message = self.refusal

    def act(self) -> HttpResponse:
        task = self.request.POST.get("task", "")
        answer = self.request.POST.get("answer", "")
        if answer not in ("yes", "no"):
            raise InvalidValue("Choose which is true: it happened, or it did not.")

        happened = answer == "yes"
        output = None
        conclusion = "it did not, so it runs again"
        if happened:
            output = _read_output(self.request.POST.get("output", ""))
            conclusion = "it happened"
        runs.settle(
            self.run.id,
            task,
            happened=happened,
            output=output,
            accept_risk=self.request.POST.get("accept_risk") == "yes",
            by=self.request.user,  # type: ignore[arg-type]
            reason=self.reason,
        )
        messages.success(self.request, f"{task} is settled: {conclusion}.")
        # Stay here while there is something left to settle.
        has_others = unknown_outcomes.unknown_tasks(self.run)
        return redirect("settle" if has_others else "run", self.run.id)

    def refused(self, error: CountersignError) -> HttpResponse:
        # The run may have gone on since it was loaded, which can be why.
        self.run = visible_run(self.request.user, self.run.id)
        self.refusal = _message(error)
        return self.page(status=_status_of(error), message=self.refusal)


def _status_of(error: CountersignError) -> int:
    if isinstance(error, UnknownThing):
        return 404
    if isinstance(error, WrongStatus):
        return 409
    return 422


def _message(error: CountersignError) -> str:
    """Return the refusal. A person who settled the task before is named."""
    account = str(error.facts.get("by") or "")
    if not isinstance(error, WrongStatus) or not account:
        return error.message
    name = names_of([account])[account]
    return f"{error.facts['task']} was settled by {name} before."


def _read_output(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return parse_strict(text)
    except NotStrict as error:
        message = f"The output is not valid JSON: {error}."
        raise InvalidValue(message, path="output") from error


def _late_outputs(run: Run, rows: Sequence[TaskResult]) -> list[str]:
    """Return the outputs that came too late to be accepted, in the order of `rows`; an
    empty text for a task without one. One query.
    """
    if not rows:
        return []
    late_results: dict[tuple[str, int], LateResult] = {}
    for late in LateResult.objects.filter(run=run):
        # What an earlier attempt returned says nothing about the one to be settled.
        late_results[(late.task, late.attempt)] = late
    outputs: list[str] = []
    for row in rows:
        late_result = late_results.get((row.task, row.attempt))
        outputs.append(_late_output(late_result))
    return outputs


def _late_output(late: LateResult | None) -> str:
    if late is None:
        return ""
    return escaped(indented(read_value(late, "output")))


def _open(run: Run, row: TaskResult, evidence: str) -> Open:
    error = read_value(row, "error") or {}
    # The version may be gone, or may have lost the node.
    doc = ""
    graph = versions.graph_for(run)
    if graph and row.node in graph.nodes:
        doc = graph.nodes[row.node].doc
    return Open(
        row=row,
        doc=doc,
        key=unknown_outcomes.key_of(row),
        going_on=unknown_outcomes.may_be_going_on(row),
        evidence=evidence,
        error=str(error.get("message", "")),
        fault=fault_of(row, protection_of(run)),
    )
