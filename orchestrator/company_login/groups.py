"""The groups of a directory, and the groups here that belong to them."""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from django.contrib.auth.models import Group

from checkpoints.conf import conf


class Changes(NamedTuple):
    """The groups that an account gains and loses, by name."""

    added: list[str]
    removed: list[str]


def local_groups(of_directory: Iterable[str]) -> set[str]:
    """Return the groups here that these groups of the directory stand for."""
    mapping = conf().company_groups
    names: set[str] = set()
    for group in of_directory:
        local = mapping.get(group, ())
        names.update(local)
    return names


def changes_of(account: Any, of_directory: Iterable[str]) -> Changes:
    """Return what the directory changes in the groups of an account. Groups that no
    group of the directory stands for are left alone. One query.
    """
    managed = managed_groups()
    rows = account.groups.filter(name__in=managed)
    held = rows.values_list("name", flat=True)
    return differences(held, of_directory)


def managed_groups() -> set[str]:
    """Return the groups here that follow the directory."""
    return local_groups(conf().company_groups)


def differences(held: Iterable[str], of_directory: Iterable[str]) -> Changes:
    """Return what the directory changes for an account that has these managed groups."""
    before = set(held)
    in_force = local_groups(of_directory)
    added = in_force - before
    removed = before - in_force
    return Changes(
        added=sorted(added),
        removed=sorted(removed),
    )


def apply(account: Any, changes: Changes) -> None:
    """Give an account these groups, and take the others. The audit log gets a line for
    each of the two, as for a change in the admin.
    """
    if changes.added:
        rows = _rows_of(changes.added)
        account.groups.add(*rows)
    if changes.removed:
        lost = Group.objects.filter(name__in=changes.removed)
        account.groups.remove(*lost)


def _rows_of(names: Collection[str]) -> list[Group]:
    """Return the rows of groups. One that is missing is made, without rights."""
    rows: list[Group] = []
    for name in names:
        row, _created = Group.objects.get_or_create(name=name)
        rows.append(row)
    return rows
