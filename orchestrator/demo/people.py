"""The people of the demo: one who starts, two who review, a steward, an auditor.
`manage.py demo_data` makes them; the page to sign in names them.
"""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Group
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

SIGN_IN = "Sign in as:"
"""The beginning of the line that lists who can sign in."""
CLAIMS = "claims"
"""The group whose members decide on claims."""
ACCOUNTS = "accounts"
"""The group whose members decide on accounts: two of them, and never who started it."""
FURTHER_GROUPS = {
    "reviewer": (CLAIMS, ACCOUNTS),
    "operator": (ACCOUNTS,),
    # Whoever edits the account is its author, so that two more have to be there.
    "steward": (ACCOUNTS,),
}
"""The groups of the people of a role, beside that of the role."""


@dataclass(frozen=True, slots=True)
class DemoUser:
    """A user to sign in as. `password` is None if it has been changed since the user
    was made.
    """

    user: AbstractUser
    role: str
    password: str | None


_CAST = (
    (
        "olive",
        "Olive Hart",
        "operator",
        "starts runs, repairs them and goes back in time",
    ),
    (
        "rita",
        "Rita Lund",
        "reviewer",
        "reviews and signs what claims and imports propose",
    ),
    ("jonas", "Jonas Weber", "reviewer", "signs too, where Rita may not decide alone"),
    ("stella", "Stella Marsh", "steward", "cleans up, holds back and erases"),
    ("ada", "Ada Novak", "auditor", "reads everything and changes nothing"),
)


def make_people() -> list[DemoUser]:
    """Return the people of the demo, in the groups of their roles. A user who exists
    keeps name, password and further groups.
    """
    return [_person(username, name, role) for username, name, role, _ in _CAST]


def people_to_sign_in_as(request: HttpRequest) -> dict[str, Any]:
    """Return `demo_people` for templates: user name, role and what the person is for.
    No passwords.

    A context processor of the demo's settings.
    """
    return {
        "demo_people": [
            {"name": name, "role": role, "purpose": purpose}
            for name, _, role, purpose in _CAST
        ]
    }


def sign_in_line(people: list[DemoUser]) -> str:
    """Return who can sign in, with passwords, as one line that can be searched for."""
    pairs = [
        f"{person.user.get_username()} {person.password or '(changed since)'}"
        for person in people
    ]
    return f"{SIGN_IN} {', '.join(pairs)}"


def _person(username: str, name: str, role: str) -> DemoUser:
    first, last = name.split()
    user, is_new = get_user_model().objects.get_or_create(
        username=username,
        defaults={
            "first_name": first,
            "last_name": last,
            "email": f"{username}@example.com",
        },
    )
    # Made from the secret key: the same each time it is printed, another on each
    # installation.
    password = salted_hmac(
        "orchestrator.demo.people", username, algorithm="sha256"
    ).hexdigest()[:12]
    if is_new:
        user.set_password(password)
        # The Django admin shows them rows, which nobody can change there.
        user.is_staff = role in ("steward", "auditor")
        user.save()
    names = [role, *FURTHER_GROUPS.get(role, ())]
    groups = [Group.objects.get_or_create(name=group_name)[0] for group_name in names]
    user.groups.add(*groups)
    is_unchanged = is_new or user.check_password(password)
    return DemoUser(user, role, password if is_unchanged else None)
