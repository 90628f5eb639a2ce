"""What changes who may do what leaves a line in the audit log: groups, permissions, accounts and tokens.

Receivers of Django's signals, so the admin, commands and code of the project are all covered; rows that are changed
past the ORM's signals are not. `OrchestratorConfig.ready` connects them. Who acts is known where a request is being
served (`acting`); else it is the system.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from checkpoints import audit_log

_actor: ContextVar[Any] = ContextVar("countersign_actor", default=None)
MOST_NAMED = 200
"""Names that one line lists."""
FLAGS = ("is_active", "is_staff", "is_superuser")
"""Fields of an account that say what it may do."""
USUAL = {"is_active": True, "is_staff": False, "is_superuser": False}


@contextmanager
def acting(actor: Any) -> Iterator[None]:
    """Whoever changes accounts meanwhile in this context is `actor`: a user, or a call that gives one when asked."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def current_actor() -> Any:
    """The signed-in person whose request is being served; None where there is none."""
    found = _actor.get()
    user = found() if callable(found) else found
    return user if user is not None and user.is_authenticated else None


def connect() -> None:
    """Connect the receivers. Idempotent."""
    users: Any = get_user_model()
    relations = [Group.permissions.through]
    relations += [getattr(users, name).through for name in ("groups", "user_permissions") if hasattr(users, name)]
    for through in relations:
        m2m_changed.connect(note_rights, sender=through, dispatch_uid="countersign_rights")
    pre_save.connect(remember_flags, sender=users, dispatch_uid="countersign_flags_before")
    post_save.connect(note_flags, sender=users, dispatch_uid="countersign_flags")
    post_delete.connect(note_group, sender=Group, dispatch_uid="countersign_group")


def note_rights(sender: Any, instance: Any, action: str, model: Any, pk_set: Any, **_: Any) -> None:
    """Members of groups, and permissions of people and groups. What is taken away is told before it is done, with what
    was there.
    """
    if action in ("pre_clear", "pre_remove"):
        words, rows = "removed", _linked(sender, instance, model)
        rows = rows if action == "pre_clear" else rows.filter(pk__in=pk_set)
    elif action == "post_add" and pk_set:
        words, rows = "added", model._default_manager.filter(pk__in=pk_set)
    else:
        return
    names = sorted(_name_of(row) for row in rows[:MOST_NAMED])
    if names:
        facts: dict[str, Any] = {"subject": _name_of(instance), words: names}
        audit_log.record(_kind(instance, model), actor=current_actor(), **facts)


def _linked(through: Any, instance: Any, model: Any) -> Any:
    """The rows on the other side that are there now."""
    own, other = type(instance)._meta.concrete_model, model
    names = {field.related_model: field.attname for field in through._meta.fields if field.is_relation}
    keys = through._default_manager.filter(**{names[own]: instance.pk}).values(names[other])
    return other._default_manager.filter(pk__in=keys)


def _kind(instance: Any, model: Any) -> str:
    return "rights_changed" if model is Permission or isinstance(instance, Permission) else "members_changed"


def _name_of(row: Any) -> str:
    if isinstance(row, Permission):
        return f"perm:{row.content_type.app_label}.{row.codename}"
    return f"group:{row.name}" if isinstance(row, Group) else f"user:{row.get_username()}"


def remember_flags(sender: Any, instance: Any, update_fields: Any = None, raw: bool = False, **_: Any) -> None:
    """Keep what the account may do in the database until it has been saved."""
    instance._countersign_before = None
    saved = instance.pk is not None and not raw and not instance._state.adding
    if saved and (update_fields is None or {*FLAGS} & {*update_fields}):
        instance._countersign_before = sender._default_manager.filter(pk=instance.pk).values(*_flags(sender)).first()


def _flags(users: Any) -> list[str]:
    return [name for name in FLAGS if hasattr(users, name)]


def note_flags(sender: Any, instance: Any, created: bool, **_: Any) -> None:
    """An account that is made with more than a person's own rights, that may do more or less than before, or that has
    another password.
    """
    before = {name: USUAL[name] for name in _flags(sender)} if created else instance._countersign_before or {}
    now = {name: getattr(instance, name) for name in before}
    changed: dict[str, Any] = {name: value for name, value in now.items() if value != before[name]}
    # Django keeps the new password until it is saved; one that is only hashed anew, at a log-in, it does not.
    if not created and getattr(instance, "_password", None) is not None:
        changed["password"] = "another"  # noqa: S105 (a word, not a password)
    if changed:
        audit_log.record("account_changed", actor=current_actor(), subject=_name_of(instance), changed=changed)


def note_group(sender: Any, instance: Group, **_: Any) -> None:
    """A group that is gone, with all that its members held by it."""
    audit_log.record("group_deleted", actor=current_actor(), subject=_name_of(instance))
