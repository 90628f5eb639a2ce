"""Who keeps house in the admin, and a run whose history may go."""

from typing import Any

import pytest
from django.test import Client

from checkpoints.models import Run
from tests.support import cast
from tests.support.histories import long_run


def browser_of(user: Any) -> Client:
    """A browser in which that person is signed in, who may enter the admin."""
    user.is_staff = True
    user.save()
    browser = Client()
    browser.force_login(user)
    return browser


@pytest.fixture
def run() -> Run:
    """A run of the graph "short" with the checkpoints 0 to 4."""
    return long_run("short", "abcd")


@pytest.fixture
def steward(people: cast.People) -> Client:
    return browser_of(people.steward)


def text(answer: Any) -> str:
    return str(answer.content.decode())
