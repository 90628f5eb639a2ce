"""People choose on the page of their account what is mailed to them."""

from datetime import time
from typing import Any

import pytest
from django.test import Client

from approvals.models import MailPreference
from tests.support.cast import People

pytestmark = pytest.mark.django_db
FORM = {
    "mode": "at_once",
    "quiet_from": "22:00",
    "quiet_until": "07:30",
    "time_zone": "Europe/Berlin",
}


def test_a_choice_is_kept_for_its_person_alone(people: People) -> None:
    client = Client()
    client.force_login(people.reviewer)
    answer = client.post("/account/mail/", FORM, follow=True)
    assert "Your mail is as you chose." in answer.content.decode()
    preference = MailPreference.objects.get()
    assert (preference.user, preference.mode) == (people.reviewer, "at_once")
    assert (preference.quiet_from, preference.quiet_until) == (time(22), time(7, 30))
    html = answer.content.decode()
    assert 'value="22:00"' in html
    assert 'value="Europe/Berlin"' in html


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "sometimes"},
        {"mode": ""},
        {"quiet_from": "25:00"},
        {"quiet_from": "22:00+01:00"},
        {"quiet_until": ""},
        {"time_zone": "Nowhere/None"},
        {"time_zone": ""},
        {"time_zone": "../../etc/passwd"},
        {"time_zone": "x" * 100},
    ],
)
def test_what_is_no_choice_changes_nothing(people: People, wrong: Any) -> None:
    client = Client()
    client.force_login(people.reviewer)
    answer = client.post("/account/mail/", {**FORM, **wrong}, follow=True)
    assert "Nothing was changed" in answer.content.decode()
    assert not MailPreference.objects.exists()
