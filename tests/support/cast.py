"""The people of the tests: Olive starts, Rita and Ravi review, Stella is steward, Ada
audits, Nobody may nothing.
"""

from functools import cached_property

import factory
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User

PASSWORD = "correct horse battery staple"


class UserFactory(factory.django.DjangoModelFactory[User]):
    """Somebody without any right, whose password is PASSWORD."""

    class Meta:
        model = get_user_model()
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"user{n}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.org")
    password = factory.django.Password(PASSWORD)


class People:
    """Each person is made when first asked for."""

    @cached_property
    def starter(self) -> User:
        return self._member("olive", "operator")

    @cached_property
    def reviewer(self) -> User:
        return self._member("rita", "reviewer")

    @cached_property
    def second_reviewer(self) -> User:
        return self._member("ravi", "reviewer")

    @cached_property
    def steward(self) -> User:
        return self._member("stella", "steward")

    @cached_property
    def auditor(self) -> User:
        return self._member("ada", "auditor")

    @cached_property
    def nobody(self) -> User:
        return UserFactory.create(username="nobody")

    def _member(self, username: str, role: str) -> User:
        user = UserFactory.create(username=username)
        # Past the signals: the people of a test are there before its audit log begins.
        User.groups.through.objects.create(
            user_id=user.pk, group_id=Group.objects.get(name=role).pk
        )
        return user


def named(user: User, name: str) -> User:
    """The user, with a first and a last name."""
    user.first_name, user.last_name = name.split()
    user.save()
    return user
