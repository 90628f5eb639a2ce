"""The account of a person of the company: found by provider and id alone, never by a
name or an address, which others may have had before.
"""

import re
import unicodedata
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from orchestrator.account_changes import current_actor, facts_of_log_in, logging_in
from orchestrator.company_login import groups, lookalikes
from orchestrator.company_login.claims import CompanyPerson

LONGEST_NAME = 140
"""The most characters of a name, which leave room for a number behind it."""
PROFILE = ("email", "first_name", "last_name")
"""The fields of an account that follow the directory."""
NO_GROUP = (
    "The directory has you in none of the groups that may use Countersign, or did not "
    "send your groups. Ask whoever manages these groups."
)
SWITCHED_OFF = "Your account here is switched off. Ask an administrator."


class NotAdmitted(Exception):
    """A person of the company who may not come in. The message is for them; `reason` is
    a word for the audit log, and `account` is theirs, if they have one.
    """

    def __init__(self, message: str, *, reason: str, account: Any = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.account = account


def admitted_account(person: CompanyPerson) -> Any:
    """Return the account of a person, made if they have none yet, with the groups that
    the directory says. Raises `NotAdmitted`; who lost all groups has lost them here too
    by then.
    """
    try:
        return _admit(person)
    except IntegrityError:
        # Another request made the account, or took its name, at the same moment.
        return _admit(person)


def _admit(person: CompanyPerson) -> Any:
    with transaction.atomic():
        account = account_of(person)
        if account is None:
            account = _make(person)
        elif account.is_active:
            _follow(account, person)
    if not account.is_active:
        raise NotAdmitted(SWITCHED_OFF, reason="inactive", account=account)
    if not groups.local_groups(person.groups):
        raise NotAdmitted(NO_GROUP, reason="no_group", account=account)
    return account


def account_of(person: CompanyPerson) -> Any:
    """Return the account that is bound to a person, locked; None if there is none."""
    bound = _bindings_of(person)
    users = get_user_model()._default_manager
    return users.select_for_update().filter(pk__in=bound.values("user")).first()


def _bindings_of(person: CompanyPerson) -> Any:
    return SocialAccount.objects.filter(provider=person.issuer, uid=person.id)


def is_account_of(account: Any, person: CompanyPerson) -> bool:
    """Return whether an account is bound to this person. One query."""
    return bool(_bindings_of(person).filter(user_id=account.pk).exists())


def is_bound(account: Any) -> bool:
    """Return whether an account belongs to a person of a company. One query."""
    return bool(SocialAccount.objects.filter(user_id=account.pk).exists())


def _make(person: CompanyPerson) -> Any:
    """Make an account without a password. Raises `NotAdmitted` before anything is
    written if no group lets this person in.
    """
    if not groups.local_groups(person.groups):
        raise NotAdmitted(NO_GROUP, reason="no_group")
    users: Any = get_user_model()
    account = users(**{users.USERNAME_FIELD: _free_name(person)})
    account.set_unusable_password()
    _set_profile(account, person)
    account.save()
    with logging_in(account):
        SocialAccount.objects.create(
            user=account, provider=person.issuer, uid=person.id, extra_data={}
        )
        groups.apply(account, groups.changes_of(account, person.groups))
    return account


def _follow(account: Any, person: CompanyPerson) -> None:
    """Bring an account to what the directory says of its person."""
    changed = _set_profile(account, person)
    if changed:
        account.save(update_fields=changed)
    # `sync_groups` leaves alone whoever has logged in since it began to read.
    _bindings_of(person).update(last_login=timezone.now())
    with logging_in(account):
        groups.apply(account, groups.changes_of(account, person.groups))


def _set_profile(account: Any, person: CompanyPerson) -> list[str]:
    """Set what the directory says, and return the fields that changed. What it does not
    say stays.
    """
    changed: list[str] = []
    for name in PROFILE:
        value = getattr(person, name)
        if not value or not hasattr(account, name):
            continue
        value = value[: account._meta.get_field(name).max_length]
        if getattr(account, name) != value:
            setattr(account, name, value)
            changed.append(name)
    return changed


def _free_name(person: CompanyPerson) -> str:
    """Return a name that no account has, not even in other letters: people would take a
    name that looks like another person's for theirs.
    """
    users: Any = get_user_model()
    base = _plain_name(person.name) or _plain_name(person.email) or "person"
    lookup = f"{users.USERNAME_FIELD}__iexact"
    name = base
    number = 1
    while users._default_manager.filter(**{lookup: name}).exists():
        number += 1
        name = f"{base}-{number}"
    return name


def _plain_name(text: str) -> str:
    """Return a name of the characters that Django takes in one, in Latin letters if all
    of it looks like them; empty if it mixes scripts.
    """
    normalized = unicodedata.normalize("NFKC", text)
    name = re.sub(r"[^\w.@+-]", "", normalized)[:LONGEST_NAME]
    return name if name.isascii() else lookalikes.distinct(name)


def connect(*signals: Any) -> None:
    """Connect the receivers that audit which accounts belong to a company. Idempotent."""
    saved, deleted = signals
    saved.connect(
        note_bound, sender=SocialAccount, dispatch_uid="countersign_company_bound"
    )
    deleted.connect(
        note_unbound, sender=SocialAccount, dispatch_uid="countersign_company_unbound"
    )


def note_bound(sender: Any, instance: Any, created: bool, **_: Any) -> None:
    """Audit an account that is bound to a person of a company."""
    if created:
        _note("account_bound", instance)


def note_unbound(sender: Any, instance: Any, **_: Any) -> None:
    """Audit an account that is no longer bound."""
    _note("account_unbound", instance)


def _note(kind: str, bound: Any) -> None:
    users = get_user_model()
    account = users._default_manager.filter(pk=bound.user_id).first()
    name = account.get_username() if account is not None else bound.user_id
    audit_log.record(
        kind,
        actor=current_actor(),
        subject=f"user:{name}",
        provider=bound.provider,
        **facts_of_log_in(),
    )
