"""Who approves calls, and the calls that were made: the fixtures of tests of calls."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.support import run_actions
from tests.support.call_graphs import calls


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """The calls that the test made, as `call_graphs.CALLS` holds them."""
    with calls() as list_of_calls:
        yield list_of_calls


@pytest.fixture
def ada() -> User:
    """A member of the group that decides, who may also act on runs of others."""
    return run_actions.reviewer(User.objects.create_superuser("ada"))
