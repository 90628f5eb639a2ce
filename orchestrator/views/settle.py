"""Settling unknown outcomes: a person says of each task whether it happened. Two equal answers, both with a reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.views.inbox import names_of
from approvals.views.page import may_post, opens_payloads, render, single_fields, visible_run
from checkpoints import versions
from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.core.visible_json import escaped, indented
from checkpoints.models import LateResult, Run, TaskResult
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.engine.errors import REFUSALS, CountersignError, InvalidValue, UnknownThing, WrongStatus
from orchestrator.runs import unknown_outcomes


@dataclass(slots=True)
class Open:
    """One task whose outcome is unknown, as its panel shows it; with what was typed, when it is shown again."""

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
        """Whether only time says that the attempt is over, so that running it again wants an extra yes."""
        return self.going_on == "maybe"

    @property
    def too_early(self) -> bool:
        return self.going_on not in (None, "maybe")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
@opens_payloads
def settle_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Every unknown outcome of the run; posted, one of them is settled."""
    run = visible_run(request.user, ref)
    may = may_post(request, run, "settle_task", refusal="refused_settle")
    if request.method != "POST" or not may:
        return _shown(request, run, may, status=403 if request.method == "POST" else 200)
    return _settle(request, run)


def _settle(request: HttpRequest, run: Run) -> HttpResponse:
    posted = {name: request.POST.get(name, "") for name in ("task", "answer", "output", "reason")}
    try:
        if posted["answer"] not in ("yes", "no"):
            raise InvalidValue("Choose which is true: it happened, or it did not.")
        happened = posted["answer"] == "yes"
        runs.settle(
            run.id,
            posted["task"],
            happened=happened,
            output=_output(posted["output"]) if happened else None,
            accept_risk=request.POST.get("accept_risk") == "yes",
            by=request.user,  # type: ignore[arg-type]
            reason=posted["reason"].strip(),
        )
    except REFUSALS as error:
        status = 404 if isinstance(error, UnknownThing) else 409 if isinstance(error, WrongStatus) else 422
        run = visible_run(request.user, run.id)
        return _shown(request, run, True, status=status, message=_message(cast(CountersignError, error)), **posted)
    what = "it happened" if happened else "it did not, so it runs again"
    messages.success(request, f"{posted['task']} is settled: {what}.")
    return redirect("settle" if unknown_outcomes.unknown_tasks(run) else "run", run.id)


def _message(error: CountersignError) -> str:
    """The refusal; whoever settled it before is called by name."""
    account = str(error.facts.get("by") or "")
    if not (isinstance(error, WrongStatus) and account):
        return error.message
    return f"{error.facts['task']} was settled by {names_of([account])[account]} before."


def _output(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return parse_strict(text)
    except NotStrict as error:
        raise InvalidValue(f"The output is no JSON: {error}.", path="output") from error


def _shown(request: HttpRequest, run: Run, may: bool, *, status: int = 200, **posted: str) -> HttpResponse:
    rows = unknown_outcomes.unknown_tasks(run)
    tasks = [_open(run, row, late) for row, late in zip(rows, _evidence(run, rows), strict=True)]
    for one in tasks:
        if one.row.task == posted.get("task"):
            for name in ("answer", "output", "reason", "message"):
                setattr(one, name, posted[name])
    context = {"run": run, "tasks": tasks, "may": may, "message": posted.get("message", "")}
    return render(request, "orchestrator/settle.html", context, section="runs", status=status)


def _evidence(run: Run, rows: Sequence[TaskResult]) -> list[str]:
    """Results that came too late to be accepted, by task. One query."""
    late = {(one.task, one.attempt): one for one in LateResult.objects.filter(run=run)} if rows else {}
    found = [late.get((row.task, row.attempt)) for row in rows]
    return [escaped(indented(read_value(one, "output"))) if one else "" for one in found]


def _open(run: Run, row: TaskResult, evidence: str) -> Open:
    error, graph = read_value(row, "error") or {}, versions.graph_for(run)
    return Open(
        row=row,
        doc=graph.nodes[row.node].doc if graph and row.node in graph.nodes else "",
        key=unknown_outcomes.key_of(row),
        going_on=unknown_outcomes.may_be_going_on(row),
        evidence=evidence,
        error=str(error.get("message", "")),
        fault=fault_of(row, protection_of(run)),
    )
