"""Filters of the console's own pages with dates and numbers that no column has: a clear
answer, and nothing changes.
"""

from collections.abc import Callable
from urllib.parse import quote_from_bytes

import pytest
from django.contrib.auth.models import User
from django.test import Client

from checkpoints.models import Run
from tests.properties.nonsense import EDGE, LATE, SOME_ID
from tests.support.cast import People
from tests.support.table_contents import contents

Browse = Callable[[User], Client]
MOMENTS = (
    *(
        "0000-01-01",
        "0001-01-01",
        "9999-12-31",
        "10000-01-01",
        "2026-02-30",
        "2026-01-01T00:00:00+99:99",
    ),
    *(
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        EDGE,
        LATE,
        "\x00",
        "\ud800",
        "9" * 100_000,
    ),
)
NUMBERS = (
    "-1",
    "0",
    str(2**31 - 1),
    str(2**31),
    str(2**63),
    "9" * 5000,
    "1e9",
    "٣",
    "\x00",
    "\ud800",
    "x" * 100_000,
)
FILTERS = {
    "/audit/": {
        "from": MOMENTS,
        "to": MOMENTS,
        "before": [f"{moment}~{2**63}" for moment in MOMENTS],
    },
    "/runs/": {
        "started": MOMENTS[:2],
        "before": [f"{moment}~{SOME_ID}" for moment in MOMENTS],
        "since": NUMBERS[-4:],
    },
    "/reviews/": {"page": NUMBERS},
    "/compare/": {"a": NUMBERS[-4:], "a=CLM-1&b=CLM-1&at": NUMBERS[-4:]},
    "/workers/": {"page": NUMBERS[-4:]},
    "/runs/CLM-1/": {"at": NUMBERS, "e": NUMBERS[-4:]},
}


@pytest.mark.django_db
def test_dates_and_numbers_that_no_column_has_are_answered_and_change_nothing(
    people: People, browse: Browse, run: Run
) -> None:
    superuser = User.objects.create_superuser("sue")
    client = browse(superuser)
    client.raise_request_exception = False
    client.get("/audit/")
    before = contents()
    failed = []
    for path, filters in FILTERS.items():
        for name, values in filters.items():
            for value in values:
                text = quote_from_bytes(value.encode("utf-8", "surrogatepass"), safe="")
                status = client.get(f"{path}?{name}={text}").status_code
                if status not in (200, 400, 404):
                    failed.append((path, name, value[:40], status))
    assert failed == []
    assert contents() == before


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (
            "/runs/?before=nonsense",
            "“before” names no run; follow the links of the list.",
        ),
        (
            f"/runs/?before=2026-01-01~{SOME_ID}",
            "“before” names no run; follow the links of the list.",
        ),
        (
            "/audit/?before=nonsense",
            "“before” names no line; follow the links of the list.",
        ),
        (
            "/audit/?before=2026-01-01T00:00:00%2B00:00~x",
            "“before” names no line; follow the links of the list.",
        ),
        (
            "/reviews/?page=nonsense",
            "“page” is a number from 1 on; follow the links of the list.",
        ),
        (
            "/reviews/?page=0",
            "“page” is a number from 1 on; follow the links of the list.",
        ),
    ],
)
def test_a_place_that_a_list_does_not_have_is_refused_and_not_read_as_its_beginning(
    people: People, browse: Browse, address: str, sentence: str
) -> None:
    answer = browse(User.objects.create_superuser("sue")).get(address)
    assert answer.status_code == 400
    assert sentence in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["from", "to"])
@pytest.mark.parametrize(
    "value", ["0000-01-01", "10000-01-01", "9999-12-31T23:59:59-23:59", "yesterday"]
)
def test_a_day_that_cannot_be_compared_is_named(
    people: People, browse: Browse, name: str, value: str
) -> None:
    answer = browse(User.objects.create_superuser("sue")).get("/audit/", {name: value})
    assert answer.status_code == 400
    assert f"“{name}” is a day" in answer.content.decode()
