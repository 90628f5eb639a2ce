"""The reviewers whom a caller names: whether there are such people, and enough of them."""

from collections.abc import Collection, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission

from checkpoints.core.ids import is_storable
from orchestrator.engine.errors import InvalidValue

MOST_REVIEWERS = 100


def require_reviewers(
    names: Sequence[str],
    *,
    quorum: int,
    excluded: Collection[str] = (),
) -> None:
    """Raise `InvalidValue`, naming them, where a name stands for nobody, or where the
    people who are named alone could never reach the quorum. `excluded` are the names of
    those whom four eyes exclude. Three queries at most.
    """
    if not 1 <= len(names) <= MOST_REVIEWERS:
        raise _refusal(f"name 1 to {MOST_REVIEWERS} reviewers")
    _require_people(names)
    _require_enough(names, quorum, excluded)


def _require_people(names: Sequence[str]) -> None:
    unknown = [name for name in names if not is_storable(name)]
    # The database would refuse such a name.
    unknown = unknown or sorted({*names} - _names_in_use(names))
    if unknown:
        raise _refusal(
            f"nobody is {', '.join(unknown)}; name people as user:<name>, group:<name> "
            "or perm:<app.codename>",
            reviewers=unknown,
        )


def _require_enough(
    names: Sequence[str], quorum: int, excluded: Collection[str]
) -> None:
    people = {name for name in names if name.startswith("user:")}
    # A group may have more members by the time at which a person signs.
    if people != {*names}:
        return
    people.difference_update(f"user:{name}" for name in excluded)
    if len(people) < quorum:
        raise _refusal(f"{len(people)} of these people may sign, and {quorum} must")


def _refusal(sentence: str, **facts: Any) -> InvalidValue:
    return InvalidValue(f"reviewers: {sentence}", path="reviewers", **facts)


def _names_in_use(names: Collection[str]) -> set[str]:
    """Return those of these names that stand for a person, a group or a right."""
    by_kind: dict[str, list[str]] = {"user": [], "group": [], "perm": []}
    for name in names:
        kind, _, rest = name.partition(":")
        by_kind.get(kind, []).append(rest)
    in_use = {f"user:{name}" for name in _active_users(by_kind["user"])}
    if by_kind["group"]:
        groups = Group.objects.filter(name__in=by_kind["group"])
        in_use |= {f"group:{name}" for name in groups.values_list("name", flat=True)}
    if by_kind["perm"]:
        in_use |= {f"perm:{name}" for name in _permissions(by_kind["perm"])}
    return in_use


def _active_users(names: Sequence[str]) -> set[str]:
    if not names:
        return set()
    users = get_user_model()
    column = users.USERNAME_FIELD
    active = users._default_manager.filter(
        **{f"{column}__in": names, "is_active": True}
    )
    return set(active.values_list(column, flat=True))


def _permissions(names: Sequence[str]) -> set[str]:
    codenames = [name.partition(".")[2] for name in names]
    rows = Permission.objects.filter(codename__in=codenames)
    pairs = rows.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in pairs}
