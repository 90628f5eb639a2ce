"""Who may see which run, and who may decide what. Pages, API, sockets, admin and verbs ask these same functions.

Never changes anything. A person is an authenticated, active user; everybody else may nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.models import Permission
from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.models import ApprovalRequest, RequestReviewer, RequestStatus
from checkpoints import timeline
from checkpoints.core.ids import is_storable, unknown_thing
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.lines import Stretch, past
from checkpoints.models import Checkpoint, Run, RunLine, TaskFigure, TaskResult

RIGHTS = {
    "view_run": "checkpoints.view_run",
    "start_run": "checkpoints.start_run",
    "steer_run": "checkpoints.steer_run",
    "settle_task": "checkpoints.settle_task",
    "export_run": "checkpoints.export_run",
    "import_run": "checkpoints.import_run",
    "manage_retention": "checkpoints.manage_retention",
    "reassign": "approvals.reassign",
    "view_audit": "approvals.view_audit",
}
"""Our word for a right -> the Django permission that grants it. Deciding is none: a gate's `reviewers` say who may,
and `approvals.decide`, which the group reviewer holds, is a name that they may use: `perm:approvals.decide`.
"""


class Allowed(NamedTuple):
    """Whether, and if not, the sentence that says why not."""

    yes: bool
    why_not: str = ""


def may(user: Any, right: str) -> bool:
    """Whether the user holds a right of `RIGHTS`. Raises `KeyError` for a word that is none."""
    return bool(user.has_perm(RIGHTS[right]))


def has_role(user: Any) -> bool:
    """Whether the user holds any right here. Who holds none sees the runs that concern him, and nothing else."""
    return bool(user.has_module_perms("checkpoints") or user.has_module_perms("approvals"))


def principals_of(user: Any) -> list[str]:
    """The names under which a gate may name this user: `user:<name>`, `group:<name>`, `perm:<app.codename>`.

    Superusers hold every permission, yet are reviewers only where named: for them only those given explicitly count.
    """
    if not user.is_active or not user.is_authenticated:
        return []
    groups = user.groups.values_list("name", flat=True)
    given = _explicit(user) if user.is_superuser else user.get_all_permissions()
    return [f"user:{user.get_username()}", *(f"group:{g}" for g in groups), *(f"perm:{p}" for p in sorted(given))]


def _explicit(user: Any) -> set[str]:
    given = Permission.objects.filter(Q(user=user) | Q(group__user=user)).select_related("content_type")
    return {f"{permission.content_type.app_label}.{permission.codename}" for permission in given}


def visible_runs(user: Any) -> "QuerySet[Run]":
    """The runs that this user may see: all with `view_run`; else those he started or that ask or asked him.

    Found from what is his, so it costs nothing because of the runs of others. For a few runs use `visible_among`.
    """
    if not user.is_active or not user.is_authenticated:
        return Run.objects.none()
    if may(user, "view_run"):
        return Run.objects.all()
    started = Run.objects.filter(started_by=user).order_by().values("id")
    asked = RequestReviewer.objects.filter(principal__in=principals_of(user)).values("request__run")
    return Run.objects.filter(id__in=started.union(asked))


def visible_figures(user: Any) -> "QuerySet[TaskFigure]":
    """The figures of the runs that this user may see."""
    figures = TaskFigure.objects.all()
    return figures if may(user, "view_run") else figures.filter(run__in=visible_runs(user).values("id"))


def visible_among(user: Any, runs: "QuerySet[Run]") -> "QuerySet[Run]":
    """Of these few runs those of `visible_runs`. Each is looked at by itself, however many more the user may see."""
    if not user.is_active or not user.is_authenticated:
        return runs.none()
    if may(user, "view_run"):
        return runs
    asked = RequestReviewer.objects.filter(request__run=OuterRef("pk"), principal__in=principals_of(user))
    return runs.filter(Q(started_by=user) | Exists(asked))


def may_see_run(user: Any, run: Run) -> bool:
    """Whether the run exists for this user. What he may not see is to be answered as unknown."""
    return visible_among(user, Run.objects.filter(id=run.id)).exists()


def visible_run(user: Any, id_or_key: str | UUID) -> Run:
    """The run of that id or key, without its input. Raises `UnknownThing` for whoever may not see it, too."""
    try:
        wanted = Q(id=UUID(str(id_or_key)))
    except ValueError:
        wanted = Q(key=str(id_or_key))
    if not is_storable(str(id_or_key)):
        wanted = Q(pk=None)
    # The seal with what it covers: read later it would be that of a later state.
    found = visible_among(user, Run.objects.filter(wanted))
    run = found.select_related("started_by", "on_behalf_of").defer("input").first()
    if run is None:
        raise unknown_thing("run", id_or_key)
    return run


def visible_checkpoint(user: Any, id_or_alias: str) -> Checkpoint:
    """The checkpoint with its run. Raises `UnknownThing` also where the caller may not see the run."""
    found = timeline.get_checkpoint(id_or_alias)
    if not may_see_run(user, found.run):
        raise unknown_thing("checkpoint", id_or_alias)
    return found


def visible_named(user: Any, refs: Sequence[str]) -> dict[str, Run]:
    """The runs of these ids or keys that this user may see, by what they were asked for. One query."""
    ids = {ref: found for ref in refs if (found := _uuid_in(ref))}
    keys = [ref for ref in refs if ref not in ids and is_storable(ref)]
    if not ids and not keys:
        return {}
    named = visible_among(user, Run.objects.filter(Q(id__in=ids.values()) | Q(key__in=keys)))
    rows = list(named.select_related("started_by", "on_behalf_of"))
    return {ref: run for ref in refs for run in rows if run.id == ids.get(ref) or (ref in keys and run.key == ref)}


def _uuid_in(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def may_decide(user: Any, request: ApprovalRequest) -> Allowed:
    """Whether this user is one who may sign this request, judged anew at each call. Reads `request.run`.

    It is about the person alone; whether anything is left to sign, `closed` tells. Under four eyes the author of a
    revision decides the other writes of the request, but not that one: `orchestrator.engine.verdicts.excludes` tells.
    """
    if not is_reviewer(user, request):
        return Allowed(False, "You are not one of its reviewers.")
    shaped = excluded(user, request)
    return Allowed(not shaped, shaped)


def closed(request: ApprovalRequest) -> str:
    """Why nobody can sign this request now; empty while it is open. Reads `request.run`."""
    if request.status != RequestStatus.OPEN:
        return "Nothing is left to decide in this request."
    if request.run.imported:
        return "The run was imported, so nothing can be decided in it."
    if request.run.status in CLOSED_TO_DECISIONS:
        return f"The run is {request.run.status}, so nothing can be decided in it."
    return ""


def is_reviewer(user: Any, request: ApprovalRequest) -> bool:
    """Whether the request names this user, himself or by a group or permission that he holds now.

    By the policy, which is sealed; the rows of reviewers only find requests for inboxes.
    """
    return not set(request.policy["reviewers"]).isdisjoint(principals_of(user))


def excluded(user: Any, request: ApprovalRequest) -> str:
    """Why four eyes exclude this user from the whole request; empty where they do not. Reads `request.run`."""
    if not request.policy.get("four_eyes"):
        return ""
    if request.run.started_by_id == user.pk:
        return "You started this run, so somebody else must sign."
    if request.run.on_behalf_of_id == user.pk:
        return "This run was started on your behalf, so somebody else must sign."
    return _shaped(user, past(request.run_id, request.line))


def _shaped(user: Any, way: Sequence[Stretch]) -> str:
    """Why four eyes exclude this user for what he did on these stretches; empty where they do not."""
    settled = Q(pk__in=[])
    departed = Q(pk__in=[])
    for one in way:
        settled |= Q(run=one.run, line=one.line)
        departed |= Q(run=one.run, number=one.line)
    if RunLine.objects.filter(departed, by=user).exists():
        return "You forked, rewound or patched this run, so somebody else must sign."
    if TaskResult.objects.filter(settled, settled_by=user).exists():
        return "You settled an outcome in this run, so somebody else must sign."
    origins = {one.run for one in way[1:]}
    if origins and Run.objects.filter(Q(started_by=user) | Q(on_behalf_of=user), id__in=origins).exists():
        return "You started the run that this one comes from, so somebody else must sign."
    return ""
