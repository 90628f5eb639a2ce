"""The rules on who may see which run and who may decide what. Pages, API, sockets,
admin and verbs all use these functions.

Never changes anything. A person is an authenticated, active user; everybody else has no
rights at all.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth import get_backends, get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group, Permission
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from approvals import delegations
from approvals.models import (
    ApprovalRequest,
    Delegation,
    RequestReviewer,
    RequestStatus,
)
from approvals.policies_in_force import account_columns
from checkpoints import timeline
from checkpoints.core.ids import is_storable, unknown_thing
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db import query_cache
from checkpoints.db.clock import kept_now
from checkpoints.db.rows import from_driver
from checkpoints.lines import Stretch, past
from checkpoints.models import Checkpoint, Run, RunLine, TaskFigure, TaskResult
from orchestrator.engine.frozen import frozen

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
    "manage_webhooks": "approvals.manage_webhooks",
    "manage_doors": "approvals.manage_doors",
}
"""Our word for a right -> the Django permission that grants it.

Deciding is not among them, because a gate's `reviewers` determine who may decide. They
may name the holders of `approvals.decide`, such as the group reviewer, as
`perm:approvals.decide`.
"""


_OWN_PERMISSIONS = "_user_perm_cache"
_GROUP_PERMISSIONS = "_group_perm_cache"
"""The attributes in which `ModelBackend` keeps what it has read of a user."""


@frozen
class HeldPrincipals:
    """The principals of a person by their own right, and those of each person for whom
    they decide now.
    """

    own: list[str] = field(default_factory=list)
    passed_on: list[tuple[Delegation, list[str]]] = field(default_factory=list)

    @property
    def principals(self) -> list[str]:
        """Return all principals, each once."""
        principals = list(self.own)
        for _, others in self.passed_on:
            principals += others
        return list(dict.fromkeys(principals))


_remembered: ContextVar[dict[Any, HeldPrincipals] | None] = ContextVar(
    "_remembered", default=None
)
"""The principals of users while a page is drawn; None everywhere else."""


class Allowed(NamedTuple):
    """A yes or no, and for a no the sentence that says why."""

    yes: bool
    why_not: str = ""


def may(user: Any, right: str) -> bool:
    """Return whether the user holds a right of `RIGHTS`. Raises `KeyError` for an
    unknown right.
    """
    return bool(user.has_perm(RIGHTS[right]))


def has_role(user: Any) -> bool:
    """Return whether the user holds any right here. A user without one sees the runs
    that concern him, and nothing else.
    """
    return bool(
        user.has_module_perms("checkpoints") or user.has_module_perms("approvals")
    )


def principals_of(user: Any) -> list[str]:
    """Return the names under which a gate may name this user, or a person for whom they
    decide now: `user:<name>`, `group:<name>`, `perm:<app.codename>`. They are for what
    the user sees: who signs is judged by `rights_to_decide`.

    Superusers hold every permission, yet are reviewers only where named: for them only
    permissions that were granted explicitly count. Read again at each call: groups and
    permissions are one query; who decides for others costs one more, and one for each
    of them.
    """
    return _read_held(user).principals


def _read_held(user: Any) -> HeldPrincipals:
    """Read the principals of a user, and remember them for the page that is drawn."""
    held = _read_with_delegated(user)
    remembered = _remembered.get()
    if remembered is not None:
        remembered[user.pk] = held
    return held


@contextmanager
def remembering_principals() -> Iterator[None]:
    """Remember the principals that are read in the block, for what it shows. Decorates
    views that only show a page: it ends with the view, so nothing that is posted,
    streamed or pushed is judged by what was read before.
    """
    token = _remembered.set({})
    try:
        yield
    finally:
        _remembered.reset(token)


def principals_shown(user: Any) -> list[str]:
    """Return `principals_of` as this page has read them already; read again outside of
    `remembering_principals`. They decide what is shown beside a run, as its relatives;
    never who may open a run, or sign.
    """
    return held_shown(user).principals


def held_shown(user: Any) -> HeldPrincipals:
    """Return the principals of `principals_shown`, apart by whose right they are."""
    remembered = _remembered.get()
    if remembered is None or user.pk not in remembered:
        return _read_held(user)
    return remembered[user.pk]


def _read_with_delegated(user: Any) -> HeldPrincipals:
    """Return the principals of a user, and those of the people for whom they decide."""
    if not user.is_active or not user.is_authenticated:
        return HeldPrincipals()
    rights = _read_rights(user)
    _keep_permissions(user, rights)
    return _with_delegated(user, rights)


def _with_delegated(user: Any, rights: "_RightsRead") -> HeldPrincipals:
    """Return the principals of a user whose rights were just read, and those of the
    people for whom they decide.
    """
    own = _principals_by(user, rights)
    passed_on: list[tuple[Delegation, list[str]]] = []
    if rights.decides_for_others:
        for delegation in delegations.lasting_to(user):
            # Their own right alone: what others passed on to them goes no further.
            principals = own_principals(delegation.delegator)
            passed_on.append((delegation, principals))
    return HeldPrincipals(own, passed_on)


@frozen
class _RightsRead:
    """The rights of a user: names of groups, permissions granted to them and to these
    groups, and whether they decide for others now.
    """

    groups: list[str]
    own_permissions: set[str]
    group_permissions: set[str]
    decides_for_others: bool


def _read_rights(user: Any) -> _RightsRead:
    """Read all rights of a user in one query, because every page needs them."""
    by_kind: dict[str, list[str]] = {}
    for kind, text in query_cache.select_values(_query_of_rights, user.pk):
        by_kind.setdefault(kind, []).append(text)
    return _RightsRead(
        groups=by_kind.get("group", []),
        own_permissions=set(by_kind.get("own", ())),
        group_permissions=set(by_kind.get("of groups", ())),
        decides_for_others="for others" in by_kind,
    )


def _query_of_rights(user: Any) -> "QuerySet[Any, Any]":
    permission = Concat("content_type__app_label", Value("."), "codename")
    groups = _groups_of(user)
    own = _links_of("user_permissions", user).values("permission")
    texts: dict[str, QuerySet[Any, Any]] = {
        "group": groups.annotate(text=F("name")),
        "own": Permission.objects.filter(pk__in=own).annotate(text=permission),
        "of groups": Permission.objects.filter(group__in=groups).annotate(
            text=permission
        ),
        "for others": delegations.lasting(kept_now(), delegate=user).annotate(
            text=Value("")
        ),
    }
    parts: list[QuerySet[Any, Any]] = []
    for kind, rows in texts.items():
        of_kind = rows.order_by().annotate(kind=Value(kind))
        parts.append(of_kind.values_list("kind", "text"))
    return parts[0].union(*parts[1:], all=True)


def _keep_permissions(user: Any, rights: _RightsRead) -> None:
    """Keep permissions that were just read where Django keeps those that it has read,
    for as long as this object of the user lasts. Those that it has read already stay.
    """
    # Django gives a superuser every permission, not only those that were granted.
    if user.is_superuser or not _are_read_as_django_reads_them():
        return
    if not hasattr(user, _OWN_PERMISSIONS):
        setattr(user, _OWN_PERMISSIONS, rights.own_permissions)
    if not hasattr(user, _GROUP_PERMISSIONS):
        setattr(user, _GROUP_PERMISSIONS, rights.group_permissions)


_READS_OF_BACKENDS = (
    "_get_permissions",
    "_get_user_permissions",
    "_get_group_permissions",
)
"""The methods by which Django's backend finds permissions and keeps them."""


def _are_read_as_django_reads_them() -> bool:
    """Return whether all backends of this project find the permissions of accounts and of
    groups where Django does.
    """
    for backend in get_backends():
        if not isinstance(backend, ModelBackend):
            continue
        for name in _READS_OF_BACKENDS:
            if getattr(type(backend), name) is not getattr(ModelBackend, name):
                return False
    return True


def own_principals(user: Any) -> list[str]:
    """Return the principals of a user by their own right. One query; none for whoever
    is not active.
    """
    if not user.is_active or not user.is_authenticated:
        return []
    rights = _read_rights(user)
    _keep_permissions(user, rights)
    return _principals_by(user, rights)


def _principals_by(user: Any, rights: _RightsRead) -> list[str]:
    """Return the principals of an active user by the rights that were just read."""
    permissions = rights.own_permissions | rights.group_permissions
    if not user.is_superuser:
        # A project's own backends may grant others.
        permissions = set(user.get_all_permissions())
    return [
        f"user:{user.get_username()}",
        *(f"group:{group}" for group in rights.groups),
        *(f"perm:{permission}" for permission in sorted(permissions)),
    ]


def principals_kept(users: Collection[int]) -> dict[int, list[str]]:
    """Return the principals of these users by their own right, by their ids, empty for
    those who are not active. None of it can be taken away before the transaction that is
    open ends: whoever is at it now is waited for. A query for each user, and three; none
    for no users.
    """
    if not users:
        return {}
    ids = query_cache.padded(users)
    # The account first, as in Django's own forms: the order of locks is the same. Those
    # hold the row of an account or a group while they change what belongs to it, so
    # that is looked up by a later statement.
    accounts = _accounts_kept(ids)
    links_and_groups = (
        _keys_of_group_links,
        _keys_of_permission_links,
        _keys_of_groups,
    )
    query_cache.lock_selected(links_and_groups, *ids)
    query_cache.lock_selected((_keys_of_permissions_of_groups,), *ids)
    return {pk: own_principals(account) for pk, account in accounts.items()}


def _accounts_kept(ids: Sequence[Any]) -> dict[Any, Any]:
    """Return the accounts of these ids, with their names and what decides on their
    rights, and keep them as they are; other columns are read when they are used.
    """
    model = get_user_model()
    accounts: dict[Any, Any] = {}
    for values in query_cache.select_values_kept(_query_of_accounts, *ids):
        [record] = from_driver(model, account_columns(), [values], connection.vendor)
        account = model.from_db(DEFAULT_DB_ALIAS, account_columns(), record)
        accounts[account.pk] = account
    return accounts


def _query_of_accounts(*users: Any) -> "QuerySet[Any, Any]":
    rows = get_user_model()._default_manager.filter(pk__in=users)
    return rows.order_by("pk").values_list(*account_columns())


def _keys_of_group_links(*users: Any) -> "QuerySet[Any, Any]":
    return _keys_in_order(_links_of("groups", *users))


def _keys_of_permission_links(*users: Any) -> "QuerySet[Any, Any]":
    return _keys_in_order(_links_of("user_permissions", *users))


def _keys_of_groups(*users: Any) -> "QuerySet[Any, Any]":
    return _keys_in_order(_groups_of(*users))


def _keys_of_permissions_of_groups(*users: Any) -> "QuerySet[Any, Any]":
    granted = Group.permissions.through.objects.filter(group__in=_groups_of(*users))
    return _keys_in_order(granted)


def _keys_in_order(rows: "QuerySet[Any]") -> "QuerySet[Any, Any]":
    return rows.order_by("pk").values("pk")


def _groups_of(*users: Any) -> "QuerySet[Group]":
    groups = _links_of("groups", *users).values("group")
    return Group.objects.filter(pk__in=groups)


def _links_of(name: str, *users: Any) -> "QuerySet[Any]":
    """Return the rows that link these accounts to their groups or permissions: by these,
    because a project names the way back as it likes.
    """
    field: Any = get_user_model()._meta.get_field(name)
    through = field.remote_field.through
    return through._default_manager.filter(  # type: ignore[no-any-return]
        **{f"{field.m2m_field_name()}__in": users}
    )


def visible_runs(user: Any) -> "QuerySet[Run]":
    """Return the runs that this user may see: all with `view_run`, else those that he
    started and those that ask or asked him to decide.

    They are found from what belongs to the user, so the number of other people's runs
    costs nothing. For a few runs use `visible_among`, for pages of a list
    `approvals.visible_runs`.
    """
    if not user.is_active or not user.is_authenticated:
        return Run.objects.none()
    principals = principals_unless_all(user)
    if principals is None:
        return Run.objects.all()
    started = Run.objects.filter(started_by=user).order_by().values("id")
    reviewed = RequestReviewer.objects.filter(principal__in=principals).values("run")
    return Run.objects.filter(id__in=started.union(reviewed))


def principals_unless_all(user: Any) -> list[str] | None:
    """Return the `principals_of` a user, by which the runs are found that he may see;
    None where he may see all. One query, and none for whoever may see all, once his
    permissions were read.
    """
    if not user.is_active or not user.is_authenticated:
        return []
    if user.is_superuser or hasattr(user, _OWN_PERMISSIONS):
        return None if may(user, "view_run") else principals_of(user)
    if _remembered.get() is not None:
        # The frame of a page shows them in any case.
        principals = principals_of(user)
        return None if may(user, "view_run") else principals
    # The permissions come with the rights, and are two queries by themselves.
    rights = _read_rights(user)
    _keep_permissions(user, rights)
    # Before what others have passed on, which costs queries for each of them.
    if may(user, "view_run"):
        return None
    return _with_delegated(user, rights).principals


def visible_figures(user: Any) -> "QuerySet[TaskFigure]":
    """Return the figures of the runs that this user may see."""
    figures = TaskFigure.objects.all()
    if may(user, "view_run"):
        return figures
    return figures.filter(run__in=visible_runs(user).values("id"))


def visible_among(
    user: Any,
    runs: "QuerySet[Run]",
    *,
    principals: Sequence[str] | None = None,
) -> "QuerySet[Run]":
    """Return those of these few runs that are among `visible_runs`. Each run is looked
    at by itself, however many others the user may see. `principals` are the user's,
    where the caller has just read them.
    """
    if not user.is_active or not user.is_authenticated:
        return runs.none()
    if principals is None:
        principals = principals_unless_all(user)
    if principals is None or may(user, "view_run"):
        return runs
    names_user = RequestReviewer.objects.filter(
        run=OuterRef("pk"), principal__in=principals
    )
    return runs.filter(Q(started_by=user) | Exists(names_user))


def visible_relatives(
    user: Any, *, principals: Sequence[str] | None = None
) -> "QuerySet[Run]":
    """Return the `visible_runs` for reads that follow a run to its relatives, which are
    the `among` of `checkpoints.timeline`: each relative is looked at by itself.
    `principals` are the user's, where the caller has just read them.
    """
    return visible_among(user, Run.objects.all(), principals=principals)


def may_see_run(user: Any, run: Run) -> bool:
    """Return whether the run exists for this user. A run that he may not see must be
    answered as unknown.
    """
    return visible_among(user, Run.objects.filter(id=run.id)).exists()


def visible_run(user: Any, id_or_key: str | UUID, *, with_input: bool = False) -> Run:
    """Return the run of that id or key, which reads its input later unless
    `with_input`. Raises `UnknownThing`, including where the user may not see the run.
    """
    text = str(id_or_key)
    run_id = _uuid_in(text)
    if not is_storable(text):
        # The database would refuse such a text, and no run has it as its key.
        named = Q(pk=None)
    elif run_id is not None:
        named = Q(id=run_id)
    else:
        named = Q(key=text)
    # People are read together with the run, because the seal covers them: read later
    # they would be those of a later state.
    runs = visible_among(user, Run.objects.filter(named))
    runs = runs.select_related("started_by", "on_behalf_of")
    if not with_input:
        runs = runs.defer("input")
    run = runs.first()
    if run is None:
        raise unknown_thing("run", id_or_key)
    return run


def visible_checkpoint(user: Any, id_or_alias: str) -> Checkpoint:
    """Return the checkpoint with its run. Raises `UnknownThing`, including where the
    user may not see the run.
    """
    checkpoint = timeline.get_checkpoint(id_or_alias)
    if not may_see_run(user, checkpoint.run):
        raise unknown_thing("checkpoint", id_or_alias)
    return checkpoint


def visible_named(user: Any, refs: Sequence[str]) -> dict[str, Run]:
    """Return the runs of these ids or keys that this user may see, by the id or key
    under which they are listed here. One query.
    """
    ids = _ids_among(refs)
    keys = [ref for ref in refs if ref not in ids and is_storable(ref)]
    if not ids and not keys:
        return {}
    named = Q(id__in=ids.values()) | Q(key__in=keys)
    runs = visible_among(user, Run.objects.filter(named)).select_related(
        "started_by", "on_behalf_of"
    )
    by_name: dict[UUID | str, Run] = {}
    for run in runs:
        by_name[run.id] = run
        by_name[run.key] = run
    run_of_ref: dict[str, Run] = {}
    for ref in refs:
        # Two of them may spell the same id differently.
        name = ids.get(ref, ref)
        if name in by_name:
            run_of_ref[ref] = by_name[name]
    return run_of_ref


def _ids_among(refs: Sequence[str]) -> dict[str, UUID]:
    ids = {}
    for ref in refs:
        run_id = _uuid_in(ref)
        if run_id is not None:
            ids[ref] = run_id
    return ids


def _uuid_in(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


class RightToDecide(NamedTuple):
    """The answer whether a person may sign a request, and for a no the sentence that says why.
    `delegations` are those by which they may: empty where the right is their own.
    """

    yes: bool
    why_not: str = ""
    delegations: tuple[Delegation, ...] = ()


NOT_A_REVIEWER = "You are not one of its reviewers."


def right_to_decide(
    user: Any, request: ApprovalRequest, *, keep: bool = False
) -> RightToDecide:
    """Return the right with which this user may sign this request: their own, or that
    of the people for whom they decide now. With `keep` it cannot be revoked before the
    open transaction ends. Reads `request.run`.

    Four eyes exclude who shaped the content, whoever's right they use, and let nobody
    decide for a person whom they exclude.
    """
    passed_on: Sequence[Delegation] = ()
    if not is_reviewer(user, request):
        passed_on = _passed_on(user, request, keep=keep)
        if not passed_on:
            return RightToDecide(False, NOT_A_REVIEWER)
    why_excluded = excluded(user, request)
    if why_excluded:
        return RightToDecide(False, why_excluded)
    if not passed_on:
        return RightToDecide(True)
    return _right_passed_on(passed_on, request)


def _passed_on(
    user: Any, request: ApprovalRequest, *, keep: bool
) -> Sequence[Delegation]:
    """Return the delegations by which this user decides for a reviewer of a request."""
    if not user.is_active or not user.is_authenticated:
        return ()
    passed_on: list[Delegation] = []
    for delegation in delegations.lasting_to(user, keep=keep):
        # By their own right: a right that was passed on is not passed on again.
        if is_reviewer(delegation.delegator, request):
            passed_on.append(delegation)
    return passed_on


def _right_passed_on(
    passed_on: Sequence[Delegation], request: ApprovalRequest
) -> RightToDecide:
    """Return the right that these delegations give: none for people whom four eyes
    exclude themselves.
    """
    usable: list[Delegation] = []
    for delegation in passed_on:
        if not excluded(delegation.delegator, request):
            usable.append(delegation)
    if usable:
        return RightToDecide(True, "", tuple(usable))
    people = [delegation.delegator for delegation in passed_on]
    return RightToDecide(False, excluded_delegators(people))


def delegators(request: ApprovalRequest, held: HeldPrincipals) -> list[Any]:
    """Return the people for whom a person would decide a request; nobody where they do
    it by their own right. No query.
    """
    if is_reviewer(None, request, principals=held.own):
        return []
    people: list[Any] = []
    for delegation, principals in held.passed_on:
        if is_reviewer(None, request, principals=principals):
            people.append(delegation.delegator)
    return people


def excluded_delegators(people: Sequence[Any]) -> str:
    """Return the sentence that says that four eyes exclude all for whom a person would
    decide.
    """
    names = " and ".join(person.get_username() for person in people)
    return f"Four eyes exclude {names}, for whom you would decide."


def may_decide(user: Any, request: ApprovalRequest) -> Allowed:
    """Return whether this user is a person who may sign this request, by their own
    right or for another, judged again at each call. Reads `request.run`.

    The answer is about the person alone; `closed` says whether anything is left to
    sign. Under four eyes the author of a revision decides the other writes of the
    request, but not that one: see `orchestrator.engine.gates.verdicts.excludes`.
    """
    right = right_to_decide(user, request)
    return Allowed(right.yes, right.why_not)


def closed(request: ApprovalRequest) -> str:
    """Return the sentence that says why nobody can sign this request now; empty while
    it is open. Reads `request.run`.
    """
    if request.status != RequestStatus.OPEN:
        return "Nothing is left to decide in this request."
    if request.run.imported:
        return "The run was imported, so nothing can be decided in it."
    if request.run.status in CLOSED_TO_DECISIONS:
        return f"The run is {request.run.status}, so nothing can be decided in it."
    return ""


def is_reviewer(
    user: Any,
    request: ApprovalRequest,
    *,
    principals: Sequence[str] | None = None,
) -> bool:
    """Return whether the request names this user, either himself or by a group or
    permission that he holds now. Those for whom he decides count for nothing here.
    `principals` are the user's, where the caller has just read them.

    What is sealed with the request decides, its policy and the tiers that have acted;
    the rows of reviewers only find requests for inboxes.
    """
    if principals is None:
        principals = own_principals(user)
    reviewers = request.policy["reviewers"]
    if request.passed_tiers:
        reviewers = request.reviewers_now
    return not set(reviewers).isdisjoint(principals)


def excluded(user: Any, request: ApprovalRequest) -> str:
    """Return the sentence that says why four eyes exclude this user from the whole
    request; empty if they do not. Reads `request.run`.
    """
    if not request.policy.get("four_eyes"):
        return ""
    if request.run.started_by_id == user.pk:
        return "You started this run, so somebody else must sign."
    if request.run.on_behalf_of_id == user.pk:
        return "This run was started on your behalf, so somebody else must sign."
    return _excluded_for_shaping(user, past(request.run_id, request.line))


def _excluded_for_shaping(user: Any, way: Sequence[Stretch]) -> str:
    """Return the sentence that says why four eyes exclude this user for what they did
    on these stretches; empty if they do not.
    """
    on_lines = Q(pk__in=[])
    departures = Q(pk__in=[])
    for stretch in way:
        on_lines |= Q(run=stretch.run, line=stretch.line)
        departures |= Q(run=stretch.run, number=stretch.line)
    if RunLine.objects.filter(departures, by=user).exists():
        return "You forked, rewound or patched this run, so somebody else must sign."
    if TaskResult.objects.filter(on_lines, settled_by=user).exists():
        return "You settled an outcome in this run, so somebody else must sign."

    # The first stretch is of the run itself, which `excluded` has looked at. No
    # origins, no query.
    origins = {stretch.run for stretch in way[1:]}
    if not origins:
        return ""
    of_user = Q(started_by=user) | Q(on_behalf_of=user)
    if Run.objects.filter(of_user, id__in=origins).exists():
        return (
            "You started the run that this one comes from, so somebody else must sign."
        )
    return ""
