"""Posting a comment with a plain form: what is refused is said, and no text is lost."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import RequestComment
from checkpoints.models import Run
from tests.support.cast import PASSWORD, People
from tests.support.run_actions import request

Browse = Callable[[User], Client]
KEY = "01a20375-2ef5-7e6f-835d-4878671b73ec"


def post(browse: Browse, user: User, run: Run, **fields: str) -> Any:
    fields = {"about": str(request(run).id), **fields}
    return browse(user).post(reverse("comment", args=[run.id]), fields, follow=True)


def test_posted_twice_it_is_written_once(
    run: Run, people: People, browse: Browse
) -> None:
    for _ in range(2):
        post(browse, people.reviewer, run, text="Once.", key=KEY)
    assert RequestComment.objects.count() == 1


def test_what_cannot_be_written_is_said(
    run: Run, people: People, browse: Browse
) -> None:
    answer = post(browse, people.reviewer, run, text=" ").content.decode()
    assert "Nothing was written: a comment needs a text." in answer
    answer = post(browse, people.reviewer, run, text="Hi", about="x").content.decode()
    assert "Nothing was written" in answer
    address = reverse("comment", args=[run.id])
    assert browse(people.nobody).post(address, {"text": "Hi"}).status_code == 404
    assert not RequestComment.objects.exists()


def test_a_text_that_is_refused_stands_in_the_form_again(
    run: Run, people: People, browse: Browse
) -> None:
    text = "\n" + "x<" * 2_001
    answer = post(browse, people.reviewer, run, text=text)
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "Nothing was written:" in html
    assert ">\n\n" + "x&lt;" * 2_001 + "</textarea>" in html
    assert not RequestComment.objects.exists()


def test_another_comment_of_a_page_that_was_used_is_kept_under_a_fresh_key(
    run: Run, people: People, browse: Browse
) -> None:
    post(browse, people.reviewer, run, text="First.", key=KEY)
    answer = post(browse, people.reviewer, run, text="Second.", key=KEY)
    assert answer.status_code == 409
    html = answer.content.decode()
    assert "Nothing was written yet: another comment" in html
    assert ">\nSecond.</textarea>" in html
    assert f'name="key" value="{KEY}"' not in html
    post(browse, people.reviewer, run, text="Second.", key=answer.context["talk"].key)
    assert RequestComment.objects.count() == 2


def test_a_comment_after_the_session_has_ended_is_said_not_to_be_written(
    run: Run, people: People
) -> None:
    client = Client()
    fields = {"about": str(request(run).id), "text": "Seen with Marta."}
    door = client.post(reverse("comment", args=[run.id]), fields)
    assert door.status_code == 401
    sign_in = {"username": people.reviewer.username, "review": str(run.id), **fields}
    wrong = client.post(reverse("login"), {**sign_in, "password": "wrong"})
    for answer in (door, wrong):
        html = answer.content.decode()
        assert "Your comment was not saved" in html
        assert "everything that you chose" not in html
        assert 'aria-label="Your comment"' in html
        assert ">\nSeen with Marta.</textarea>" in html
    client.post(reverse("login"), {**sign_in, "password": PASSWORD})
    assert not RequestComment.objects.exists()


def test_a_claim_after_the_session_has_ended_is_said_to_change_nothing(
    run: Run,
) -> None:
    fields = {"request": str(request(run).id), "act": "claim"}
    door = Client().post(reverse("claim", args=[run.id]), fields)
    assert "Nothing was changed: your session has ended." in door.content.decode()
