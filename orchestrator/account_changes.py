"""Lines in the audit log for changes of rights: groups, permissions, accounts and
tokens.

Receivers of Django's signals, so the admin, commands and code of the project are all
covered; rows that are changed past the ORM's signals are not.
`OrchestratorConfig.ready` connects them. The actor is known while a request is being
served (`acting`); else it is the system. A log-in that changes groups is its person's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from checkpoints.audit import lines as audit_log

_actor: ContextVar[Any] = ContextVar("countersign_actor", default=None)
_by_log_in: ContextVar[bool] = ContextVar("countersign_by_log_in", default=False)
MOST_NAMED = 200
"""The most names that one line lists."""
FLAGS = ("is_active", "is_staff", "is_superuser")
"""Fields of an account that say what it may do."""
USUAL = {"is_active": True, "is_staff": False, "is_superuser": False}
"""The flags of an account with a person's own rights alone."""


@contextmanager
def acting(actor: Any) -> Iterator[None]:
    """Attribute changes of accounts made in this context to `actor`: a user, or a
    callable that returns one.
    """
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


@contextmanager
def logging_in(account: Any) -> Iterator[None]:
    """Attribute changes of accounts made in this context to the log-in of `account`,
    whoever else is signed in in the same browser.
    """
    token = _by_log_in.set(True)
    try:
        with acting(account):
            yield
    finally:
        _by_log_in.reset(token)


def facts_of_log_in() -> dict[str, Any]:
    """Return the fact that a log-in changes an account; empty if none does."""
    return {"by_log_in": True} if _by_log_in.get() else {}


def current_actor() -> Any:
    """Return the signed-in person whose request is being served; else None."""
    actor = _actor.get()
    user = actor() if callable(actor) else actor
    if user is None or not user.is_authenticated:
        return None
    return user


def connect() -> None:
    """Connect the receivers. Idempotent."""
    users: Any = get_user_model()
    relations = [Group.permissions.through]
    # A project's own model of users may have neither.
    for name in ("groups", "user_permissions"):
        if hasattr(users, name):
            relations.append(getattr(users, name).through)
    for through in relations:
        m2m_changed.connect(
            note_rights, sender=through, dispatch_uid="countersign_rights"
        )
    pre_save.connect(
        remember_flags, sender=users, dispatch_uid="countersign_flags_before"
    )
    post_save.connect(note_flags, sender=users, dispatch_uid="countersign_flags")
    post_delete.connect(note_group, sender=Group, dispatch_uid="countersign_group")


def note_rights(
    sender: Any,
    instance: Any,
    action: str,
    model: Any,
    pk_set: Any,
    **_: Any,
) -> None:
    """Audit changed members of groups, and changed permissions of people and groups. A
    removal is audited before it is done, while its rows still exist.
    """
    if action == "pre_clear":
        change = "removed"
        rows = _linked(sender, instance, model)
    elif action == "pre_remove":
        change = "removed"
        rows = _linked(sender, instance, model).filter(pk__in=pk_set)
    elif action == "post_add" and pk_set:
        change = "added"
        rows = model._default_manager.filter(pk__in=pk_set)
    else:
        return
    # A set that nothing is taken from, or added to, leaves no line.
    names = sorted(_name_of(row) for row in rows[:MOST_NAMED])
    if not names:
        return
    facts: dict[str, Any] = {
        "subject": _name_of(instance),
        change: names,
        **facts_of_log_in(),
    }
    kind = _kind(instance, model)
    audit_log.record(kind, actor=current_actor(), **facts)


def _linked(through: Any, instance: Any, model: Any) -> Any:
    """Return the rows on the other side of a relation that are linked now."""
    columns: dict[Any, str] = {}
    for field in through._meta.fields:
        if field.is_relation:
            columns[field.related_model] = field.attname
    # An instance may be of a proxy model, which no relation names.
    own_column = columns[type(instance)._meta.concrete_model]
    links = through._default_manager.filter(**{own_column: instance.pk})
    return model._default_manager.filter(pk__in=links.values(columns[model]))


def _kind(instance: Any, model: Any) -> str:
    """Return the kind of the audit line. The instance is the permission if the change
    was made from its side.
    """
    if model is Permission or isinstance(instance, Permission):
        return "rights_changed"
    return "members_changed"


def _name_of(row: Any) -> str:
    if isinstance(row, Permission):
        return f"perm:{row.content_type.app_label}.{row.codename}"
    if isinstance(row, Group):
        return f"group:{row.name}"
    return f"user:{row.get_username()}"


def remember_flags(
    sender: Any,
    instance: Any,
    update_fields: Any = None,
    raw: bool = False,
    **_: Any,
) -> None:
    """Keep the account's flags in the database until the account has been saved."""
    instance._countersign_before = None
    # A new account has no flags yet; a fixture is loaded unchanged.
    if instance.pk is None or raw or instance._state.adding:
        return
    # Each log-in saves `last_login` alone, and must not cost another query.
    if update_fields is not None and not {*FLAGS} & {*update_fields}:
        return
    rows = sender._default_manager.filter(pk=instance.pk)
    instance._countersign_before = rows.values(*_flags(sender)).first()


def _flags(users: Any) -> list[str]:
    return [name for name in FLAGS if hasattr(users, name)]


def note_flags(sender: Any, instance: Any, created: bool, **_: Any) -> None:
    """Audit an account that is created with more than a person's own rights, whose
    rights changed, or that has another password.
    """
    if created:
        before = {name: USUAL[name] for name in _flags(sender)}
    else:
        before = instance._countersign_before or {}
    changed: dict[str, Any] = {}
    for name, value_before in before.items():
        value = getattr(instance, name)
        if value != value_before:
            changed[name] = value
    # Django keeps a new password until it is saved. It keeps none that is only rehashed
    # at a log-in.
    if not created and getattr(instance, "_password", None) is not None:
        changed["password"] = "another"  # noqa: S105 (a word, not a password)
    if changed:
        audit_log.record(
            "account_changed",
            actor=current_actor(),
            subject=_name_of(instance),
            changed=changed,
        )


def note_group(sender: Any, instance: Group, **_: Any) -> None:
    """Audit the deletion of a group, and of all rights that its members had by it."""
    audit_log.record("group_deleted", actor=current_actor(), subject=_name_of(instance))
