"""The changes that a directory makes to the accounts of a company between two log-ins:
planned first, then done. Whoever logs in meanwhile is left alone: that log-in is newer.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import get_user_model
from django.db import transaction

from checkpoints.conf import conf
from orchestrator.company_login import groups
from orchestrator.company_login.groups import Changes
from orchestrator.company_login.scim import DirectoryUser, UnreadableDirectory

ABSENT = DirectoryUser(active=False, groups=frozenset())


@dataclass(frozen=True, slots=True)
class DirectoryChange:
    """The change that the directory makes to one account."""

    key: Any
    name: str
    arrived_at: datetime
    user: DirectoryUser
    groups: Changes
    switched_off: bool

    def json(self) -> dict[str, Any]:
        return {
            "account": self.name,
            "added": self.groups.added,
            "removed": self.groups.removed,
            "switched_off": self.switched_off,
        }


def bound_accounts() -> list[SocialAccount]:
    """Return the accounts of the provider, as they are before the directory is read. One
    query.
    """
    rows = SocialAccount.objects.filter(provider=conf().company_issuer)
    return list(rows.select_related("user").order_by("pk"))


def planned_changes(
    bound: Sequence[SocialAccount], users: Mapping[str, DirectoryUser]
) -> list[DirectoryChange]:
    """Return what these users of the directory change in these accounts. One query.
    Raises `UnreadableDirectory` if none of the accounts is among them.

    Who is not among them, or not active, is switched off; nobody is switched on again,
    and no superuser off. People who have never signed in have no account.
    """
    if bound and not any(row.uid in users for row in bound):
        raise UnreadableDirectory(
            f"none of the {len(bound)} accounts is in this directory: "
            "is its id the one by which they sign in?"
        )
    held = _managed_groups_of([row.user_id for row in bound])
    return [
        change
        for row in bound
        for change in _changes_of(
            row.user, row.last_login, users.get(row.uid, ABSENT), held[row.user_id]
        )
    ]


def _managed_groups_of(keys: list[Any]) -> dict[Any, set[str]]:
    """Return the groups that follow the directory, by account. One query."""
    users = get_user_model()._default_manager
    pairs = users.filter(pk__in=keys, groups__name__in=groups.managed_groups())
    held: dict[Any, set[str]] = defaultdict(set)
    for key, name in pairs.values_list("pk", "groups__name"):
        held[key].add(name)
    return held


def _changes_of(
    account: Any, arrived_at: datetime, user: DirectoryUser, held: set[str]
) -> Iterator[DirectoryChange]:
    """Yield the change of an account, if there is one."""
    # A user who is not active has no groups, whatever the directory still lists.
    of_directory = user.groups if user.active else frozenset()
    changes = groups.differences(held, of_directory)
    off = account.is_active and not user.active and not account.is_superuser
    if off or changes.added or changes.removed:
        name = account.get_username()
        yield DirectoryChange(account.pk, name, arrived_at, user, changes, off)


def apply(planned: DirectoryChange) -> DirectoryChange | None:
    """Bring one account to what the directory says, in one transaction, and return what
    that changed: the account may be another than when it was planned. None if there was
    nothing to do, the account is gone, or its person has logged in since.
    """
    users = get_user_model()._default_manager
    with transaction.atomic():
        # A log-in locks the same row.
        account: Any = users.select_for_update().filter(pk=planned.key).first()
        if account is None or not _is_as_planned(planned):
            return None
        held = _managed_groups_of([account.pk])[account.pk]
        change = next(
            _changes_of(account, planned.arrived_at, planned.user, held), None
        )
        if change is not None:
            groups.apply(account, change.groups)
        if change is not None and change.switched_off:
            account.is_active = False
            account.save(update_fields=["is_active"])
        return change


def _is_as_planned(planned: DirectoryChange) -> bool:
    """Return whether the person of an account has not logged in since it was read, and
    still has it.
    """
    rows = SocialAccount.objects.filter(
        provider=conf().company_issuer,
        user=planned.key,
        last_login=planned.arrived_at,
    )
    return bool(rows.exists())
