"""The page of one's own account: who one is, what one may do, and whether single keys
do anything.
"""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from orchestrator.models import ApiToken, Preference
from orchestrator.tokens import make_token
from tests.support.cast import PASSWORD, People, named

Browse = Callable[[User], Client]
OFF = 'data-shortcuts="off"'


def test_the_page_shows_who_one_is_and_what_one_may_do(
    people: People, browse: Browse
) -> None:
    html = (
        browse(named(people.starter, "Olive Hart"))
        .get(reverse("account"))
        .content.decode()
    )
    assert "Olive Hart" in html
    assert people.starter.username in html
    assert all(f"{group.name}</li>" in html for group in people.starter.groups.all())
    assert "Start runs" in html
    assert "Read the whole audit log" not in html


def test_who_has_no_right_reads_what_he_sees(people: People, browse: Browse) -> None:
    html = browse(people.nobody).get(reverse("account")).content.decode()
    assert "You see the runs that you started, and those that ask you." in html


def test_without_signing_in_the_page_leads_to_the_door(db: None) -> None:
    assert Client().get(reverse("account")).url.startswith("/login/")


def test_shortcuts_that_are_switched_off_stay_off_on_every_page_and_after_signing_in_elsewhere(
    people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    assert OFF not in client.get("/runs/").content.decode()
    client.post(reverse("shortcuts"), {"shortcuts": "off"})
    assert Preference.objects.get(user=people.starter).shortcuts is False
    assert OFF in client.get("/runs/").content.decode()
    elsewhere = Client()
    elsewhere.post(
        "/login/", {"username": people.starter.username, "password": PASSWORD}
    )
    assert OFF in elsewhere.get("/runs/").content.decode()


def test_shortcuts_can_be_switched_on_again(people: People, browse: Browse) -> None:
    client = browse(people.starter)
    client.post(reverse("shortcuts"), {"shortcuts": "off"})
    client.post(reverse("shortcuts"), {"shortcuts": "on"})
    assert OFF not in client.get("/runs/").content.decode()


def test_who_signs_in_after_a_person_without_shortcuts_has_them(people: People) -> None:
    client = Client()
    Preference.objects.create(user=people.starter, shortcuts=False)
    for person, off in ((people.starter, True), (people.reviewer, False)):
        client.post("/login/", {"username": person.username, "password": PASSWORD})
        assert (OFF in client.get("/runs/").content.decode()) is off
        client.post("/logout/")


@pytest.mark.parametrize("sent", [{}, {"shortcuts": "maybe"}])
def test_a_choice_that_is_none_changes_nothing(
    sent: dict[str, str], people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(reverse("shortcuts"), sent)
    assert answer.status_code == 302
    assert not Preference.objects.exists()


def test_one_reads_of_ones_own_tokens_and_of_nobody_elses(
    people: People, browse: Browse
) -> None:
    make_token(people.starter, name="nightly import", scopes=["start"])
    make_token(people.reviewer, name="the phone")
    html = browse(people.starter).get(reverse("account")).content.decode()
    assert "nightly import" in html
    assert ApiToken.objects.get(user=people.starter).hint in html
    assert "the phone" not in html


def test_every_page_lists_its_keys(people: People, browse: Browse) -> None:
    client = browse(people.starter)
    listed = client.get(reverse("compare")).content.decode().partition('id="keys"')[2]
    assert "next, previous difference" in listed
    assert "find a run" in listed
    listed = client.get(reverse("workers")).content.decode().partition('id="keys"')[2]
    assert "next, previous difference" not in listed
