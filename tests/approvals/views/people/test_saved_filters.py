"""People keep filters of the inbox under a name, each for themselves."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import SavedFilter
from approvals.views.people.saved_filters import MOST
from tests.support.cast import People

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def post(browse: Browse, user: User, **posted: str) -> Any:
    fields = {"act": "keep", "name": "Nora", "folder": "mine", "q": "Nora", **posted}
    return browse(user).post(reverse("saved_filters"), fields, follow=True)


def test_a_filter_is_kept_is_listed_for_its_person_alone_and_is_removed(
    people: People, browse: Browse
) -> None:
    answer = post(browse, people.reviewer, taken="me")
    assert "The filter is kept." in answer.content.decode()
    saved = SavedFilter.objects.get()
    assert saved.user == people.reviewer
    assert saved.query == "folder=mine&q=Nora&taken=me"
    link = f'href="?{saved.query}"'.replace("&", "&amp;")
    page = browse(people.reviewer).get(reverse("inbox")).content.decode()
    # The links that narrow the list keep no words here.
    assert page.count(link) == 1
    other = browse(people.second_reviewer).get(reverse("inbox")).content.decode()
    assert link not in other
    # Nobody removes what is another person's.
    answer = post(browse, people.second_reviewer, act="remove")
    assert "Nothing was changed" in answer.content.decode()
    answer = post(browse, people.reviewer, act="remove")
    assert "The filter is removed." in answer.content.decode()
    assert not SavedFilter.objects.exists()


def test_one_of_the_same_name_is_replaced(people: People, browse: Browse) -> None:
    post(browse, people.reviewer)
    post(browse, people.reviewer, q="Ines", folder="expired")
    assert SavedFilter.objects.get().query == "folder=expired&q=Ines"
    post(browse, people.second_reviewer)
    assert SavedFilter.objects.count() == 2


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": "x" * 61}, {"act": ""}, {"name": "a\0b"}]
)
def test_what_is_no_filter_changes_nothing(
    people: People, browse: Browse, wrong: dict[str, str]
) -> None:
    answer = post(browse, people.reviewer, **wrong)
    assert "Nothing was changed" in answer.content.decode()
    assert not SavedFilter.objects.exists()


def test_a_filter_is_made_of_what_the_inbox_knows_and_never_leads_elsewhere(
    people: People, browse: Browse
) -> None:
    answer = post(
        browse,
        people.reviewer,
        folder="//evil.example",
        taken="nonsense",
        q="a&folder=signed#x" + "y" * 300,
    )
    assert answer.redirect_chain[-1][0].startswith("/reviews/?folder=mine&q=a%26folder")
    query = SavedFilter.objects.get().query
    page = browse(people.reviewer).get(f"{reverse('inbox')}?{query}")
    assert page.context["folder"] == "mine"
    assert page.context["q"].startswith("a&folder=signed#xyy")
    assert page.context["taken"] == ""


def test_the_longest_words_fit(people: People, browse: Browse) -> None:
    answer = post(browse, people.reviewer, q="\U0001f600" * 300, taken="others")
    assert "The filter is kept." in answer.content.decode()
    query = SavedFilter.objects.get().query
    page = browse(people.reviewer).get(f"{reverse('inbox')}?{query}")
    assert page.context["q"] == "\U0001f600" * 200


def test_nobody_keeps_more_than_so_many(people: People, browse: Browse) -> None:
    for number in range(MOST):
        post(browse, people.reviewer, name=f"filter {number}")
    answer = post(browse, people.reviewer, name="one more")
    assert "Nothing was changed" in answer.content.decode()
    assert SavedFilter.objects.count() == MOST
    answer = post(browse, people.reviewer, name="filter 3", q="Ines")
    assert "The filter is kept." in answer.content.decode()


def test_a_name_that_no_filter_can_have_removes_nothing(
    people: People, browse: Browse
) -> None:
    post(browse, people.reviewer)
    for name in ("a\0b", "x" * 61):
        answer = post(browse, people.reviewer, act="remove", name=name)
        assert "Nothing was changed" in answer.content.decode()
    assert SavedFilter.objects.count() == 1


def test_who_is_not_signed_in_keeps_nothing(client: Client, db: None) -> None:
    answer = client.post(reverse("saved_filters"), {"act": "keep", "name": "Nora"})
    assert answer.status_code == 302
    assert "/login/" in answer.url
    assert not SavedFilter.objects.exists()
