"""What every page shares: a form that says a thing twice is refused by name, unless it
is a list.
"""

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import RequestFactory

from approvals.views.page import answer_to_repeated

pytestmark = pytest.mark.django_db


def _answer(*lists: str, **posted: Any) -> str:
    """Return what the refusal says; empty where the form may be read."""
    request = RequestFactory().post("/", posted)
    request.user = AnonymousUser()
    answer = answer_to_repeated(request, lists)
    return answer.content.decode() if answer else ""


def test_a_form_that_says_each_thing_once_may_be_read() -> None:
    assert _answer(verdict="approve", reason="") == ""


def test_a_field_that_stands_twice_is_named() -> None:
    assert "The field reason is given more than once. Nothing was changed." in _answer(
        reason=["a", "b"], verdict="x"
    )


def test_a_file_counts_as_a_field() -> None:
    files = [SimpleUploadedFile(name, b"1") for name in ("a.txt", "b.txt")]
    assert "The field letter is given more than once." in _answer(letter=files)


def test_a_list_may_stand_as_often_as_it_has_items() -> None:
    assert _answer("write", write=["1", "2"]) == ""
    assert "The field hash is given more than once." in _answer(
        "write", write=["1", "2"], hash=["a", "b"]
    )
