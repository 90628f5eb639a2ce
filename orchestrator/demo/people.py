"""The people of the demo: one who starts, two who review, a steward, an auditor. `manage.py demo_data` makes them; the
page to sign in names them.
"""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Group
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

SIGN_IN = "Sign in as:"
"""What the line begins with that says who can sign in."""
CLAIMS = "claims"
"""The group whose members decide on claims."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody to log in as. `password` is None where it is no longer the one that was made."""

    user: AbstractUser
    role: str
    password: str | None


_CAST = (
    ("olive", "Olive Hart", "operator", "starts runs, repairs them and goes back in time"),
    ("rita", "Rita Lund", "reviewer", "reviews and signs what claims and imports propose"),
    ("jonas", "Jonas Weber", "reviewer", "signs too, where Rita may not decide alone"),
    ("stella", "Stella Marsh", "steward", "cleans up, holds back and erases"),
    ("ada", "Ada Novak", "auditor", "reads everything and changes nothing"),
)


def make_people() -> list[Person]:
    """The cast, in the groups of their roles. Whoever exists keeps name, password and further groups."""
    return [_person(username, name, role) for username, name, role, _ in _CAST]


def people_to_sign_in_as(request: HttpRequest) -> dict[str, Any]:
    """Return `demo_people` for templates: user name, role and what the person is for. No passwords.

    A context processor of the demo's settings.
    """
    return {"demo_people": [{"name": name, "role": role, "purpose": purpose} for name, _, role, purpose in _CAST]}


def sign_in_line(people: list[Person]) -> str:
    """Return who can sign in, with passwords, as one line that can be searched for."""
    pairs = [f"{person.user.get_username()} {person.password or '(changed since)'}" for person in people]
    return f"{SIGN_IN} {', '.join(pairs)}"


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
