"""Doors: making one, giving it another secret, switching it off and on.

Whoever knows the secret of a door signs as its account. So the account is one with
which no person logs in, and has no more rights than other reviewers.
"""

import re
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from approvals.doors.pointers import is_pointer
from approvals.models import Door, Passkey
from approvals.permissions import may
from approvals.webhooks import signatures
from checkpoints.audit import lines as audit_log
from checkpoints.conf import keyring
from checkpoints.core.arguments import (
    checked_actor,
    checked_moment,
    checked_person,
    checked_text,
    checked_yes_or_no,
)
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.db.clock import read_now
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import registry
from orchestrator.engine.errors import InvalidValue, UnknownThing
from orchestrator.engine.graphs.effect import HUMAN

LONGEST_SLUG = 60
LONGEST_NAME = 200
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")


def may_manage(user: Any) -> bool:
    """Return whether this user may make doors and switch them."""
    return may(user, "manage_doors")


def make_door(
    slug: str,
    *,
    account: Any,
    graph: str,
    node: str,
    key_pointer: str,
    answer_pointer: str = "",
    until: datetime | None = None,
    secret: str = "",
    by: Any,
) -> tuple[Door, str]:
    """Make a door that answers what the gate of this node asks, as this account. Return
    it with its secret, which is never shown again: a new one, or that of the sender.
    `by` None is the system.

    Raises `InvalidValue`, and `UnknownThing` for a person who manages no doors.
    """
    _require_manager(by)
    _require_slug(slug)
    _require_question(graph, node)
    require_service_account(checked_person(account, "account"))
    secret = _checked_secret(secret)
    if until is not None and checked_moment(until, "until") <= read_now():
        raise InvalidValue("until is not ahead of now", path="until")
    protection = Protection(encrypted=bool(keyring().encryption))
    door = Door(
        slug=slug,
        account=account,
        secret=pack_json(secret),
        encrypted=protection.encrypted,
        graph=graph,
        node=node,
        key_pointer=_checked_pointer(key_pointer, "key_pointer", least=1),
        answer_pointer=_checked_pointer(answer_pointer, "answer_pointer", least=0),
        until=until,
        by=by,
        at=read_now(),
    )
    sealed_rows.seal_and_encrypt([door], protection)
    with transaction.atomic():
        _insert(door)
        name = account.get_username()
        audit_log.record("door_made", actor=by, graph=graph, door=slug, account=name)
    return door, secret


def rotate_secret(door_id: UUID | str, *, secret: str = "", by: Any) -> str:
    """Give a door another secret, and return it. From now on nothing is accepted that
    is signed with the old one alone. Raises as `make_door`, and `TamperedRow`,
    `WrongKey`.
    """
    _require_manager(by)
    secret = _checked_secret(secret)
    with transaction.atomic():
        door = _locked(door_id)
        _change(door, secret=pack_json(secret))
        audit_log.record("door_rotated", actor=by, graph=door.graph, door=door.slug)
    return secret


def switch_door(door_id: UUID | str, *, enabled: bool, by: Any) -> Door:
    """Switch a door on or off. Raises `UnknownThing`, `InvalidValue`, `TamperedRow` and
    `WrongKey`.
    """
    _require_manager(by)
    checked_yes_or_no(enabled, "enabled")
    with transaction.atomic():
        door = _locked(door_id)
        if door.enabled != enabled:
            _change(door, enabled=enabled)
            audit_log.record(
                "door_switched",
                actor=by,
                graph=door.graph,
                door=door.slug,
                enabled=enabled,
            )
    return door


def is_open(door: Door) -> bool:
    """Return whether a door is switched on and its time is not over."""
    return door.enabled and (door.until is None or door.until > read_now())


def verify_door(door: Door) -> None:
    """Raise `TamperedRow` or `WrongKey` if a door does not match its seal."""
    sealed_rows.verify_row(door, Protection(encrypted=door.encrypted))


def key_of(door: Door) -> bytes:
    """Return the bytes with which the messages for a door are signed. Raises
    `TamperedRow` and `WrongKey`.
    """
    verify_door(door)
    return signatures.key_of(str(read_value(door, "secret")))


def require_service_account(account: Any) -> None:
    """Raise `InvalidValue` for an account with which a person logs in, or might."""
    is_of_person = (
        account.has_usable_password()
        or account.last_login is not None
        or account.is_superuser
        or getattr(account, "is_staff", False)
        or Passkey.objects.filter(user=account).exists()
    )
    if is_of_person:
        raise InvalidValue(
            "the account of a door has no password and no passkey, is no staff, and "
            "nobody has logged in with it",
            path="account",
        )


def _require_manager(by: Any) -> None:
    person = checked_actor(by, "by")
    if person is not None and not may_manage(person):
        raise UnknownThing("there are no doors")


def _require_slug(slug: Any) -> None:
    checked_text(slug, "slug", least=1, most=LONGEST_SLUG)
    if _SLUG.fullmatch(slug) is None:
        raise InvalidValue(
            "the name of a door has small letters, digits and hyphens", path="slug"
        )


def _require_question(graph: Any, node: Any) -> None:
    """Raise `InvalidValue` unless this node asks people in a registered version of this
    graph.
    """
    checked_text(graph, "graph", least=1, most=LONGEST_NAME)
    checked_text(node, "node", least=1, most=LONGEST_NAME)
    graphs = {compiled.name for compiled in registry.all()}
    if graph not in graphs:
        raise _unknown(f"there is no graph {graph}; there are", graphs, path="graph")
    # Runs of an older version may still come to a node that the newest one lacks.
    versions = [compiled for compiled in registry.all() if compiled.name == graph]
    asking = {
        candidate.name
        for version in versions
        for candidate in version.nodes.values()
        if candidate.gated and candidate.effect == HUMAN
    }
    if node not in asking:
        words = f"graph {graph} asks nobody at {node}; the nodes that ask are"
        raise _unknown(words, asking, path="node")


def _unknown(words: str, names: set[str], *, path: str) -> InvalidValue:
    """Return the refusal of a name, with those that there are."""
    listed = ", ".join(sorted(names)) or "none"
    return InvalidValue(f"{words}: {listed}", path=path)


def _insert(door: Door) -> None:
    """Insert a new door. Raises `InvalidValue` if there is one of its name."""
    try:
        with transaction.atomic():
            door.save(force_insert=True)
    except IntegrityError:
        # The name of a door is in the settings of its sender, and stays.
        raise InvalidValue("there is a door of this name", path="slug") from None


def _checked_secret(secret: str) -> str:
    """Return the secret of the sender, or a new one. Raises `InvalidValue`, which
    repeats nothing of it.
    """
    if not secret:
        return signatures.new_secret()
    try:
        signatures.key_of(secret)
    except ValueError as error:
        raise InvalidValue(f"this is no secret: {error}", path="secret") from None
    return secret


def _checked_pointer(pointer: Any, path: str, *, least: int) -> str:
    text = checked_text(pointer, path, least=least, most=LONGEST_NAME)
    if not is_pointer(text):
        raise InvalidValue(f"{path} is no JSON Pointer, as /data/order is", path=path)
    return text


def _locked(door_id: UUID | str) -> Door:
    rows: QuerySet[Door] = Door.objects.filter(id=uuid_of(door_id, "door"))
    door = rows.select_for_update(of=("self",)).first()
    if door is None:
        raise unknown_thing("door", door_id)
    return door


def _change(door: Door, **values: Any) -> None:
    # A new seal would make a changed row look as it was written.
    verify_door(door)
    protection = Protection(encrypted=door.encrypted)
    door.save(update_fields=sealed_rows.seal_again(door, protection, **values))
