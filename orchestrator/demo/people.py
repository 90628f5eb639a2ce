"""The people of the demo: one who starts, two who review, a steward, an auditor. `manage.py demo_data` makes them."""

from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Group
from django.utils.crypto import salted_hmac

CLAIMS = "claims"
"""The group whose members decide on claims."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody to log in as. `password` is None where it is no longer the one that was made."""

    user: AbstractUser
    role: str
    password: str | None


_CAST = (
    ("olive", "Olive Hart", "operator"),
    ("rita", "Rita Lund", "reviewer"),
    ("jonas", "Jonas Weber", "reviewer"),
    ("stella", "Stella Marsh", "steward"),
    ("ada", "Ada Novak", "auditor"),
)


def make_people() -> list[Person]:
    """The cast, in the groups of their roles. Whoever exists keeps name, password and further groups."""
    return [_person(username, name, role) for username, name, role in _CAST]


def _person(username: str, name: str, role: str) -> Person:
    first, last = name.split()
    given = {"first_name": first, "last_name": last, "email": f"{username}@example.com"}
    user, made = get_user_model().objects.get_or_create(username=username, defaults=given)
    # From the secret key: the same each time it is printed, another on each installation.
    password = salted_hmac("orchestrator.demo.people", username, algorithm="sha256").hexdigest()[:12]
    if made:
        user.set_password(password)
        # The Django admin shows them rows, which nobody can change there.
        user.is_staff = role in ("steward", "auditor")
        user.save()
    names = [role, CLAIMS] if role == "reviewer" else [role]
    user.groups.add(*(Group.objects.get_or_create(name=group)[0] for group in names))
    return Person(user, role, password if made or user.check_password(password) else None)
