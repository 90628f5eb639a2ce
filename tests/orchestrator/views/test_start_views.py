"""Form and JSON of the page that starts a run: two views of one input."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import unpack_json
from tests.support.cast import People

Browse = Callable[[User], Client]
URL = "/graphs/page_claim/start/"
GOOD = {
    "mode": "form",
    "i.claim_id": "CLM-1",
    "i.amount": "4512.50",
    "i.cause": "fire",
    "i.holder.name": "Marta",
    "i.photos": "one.jpg\r\ntwo.jpg",
    "i.urgent": "true",
}


def shown(client: Client, **posted: Any) -> Any:
    """The form as the page answers to another view."""
    answer = client.post(URL, posted)
    assert answer.status_code == 200
    assert not Run.objects.exists()
    return answer.context["form"]


def fields_of(form: Any) -> dict[str, Any]:
    return {control.path: control.value for control in form.root.walk() if control.path}


def test_what_was_typed_in_the_form_stands_in_the_json(
    claim_graph: None, people: People, browse: Browse
) -> None:
    form = shown(browse(people.starter), **{**GOOD, "key": "K", "view": "json"})
    assert form.mode == "json"
    assert form.key == "K"
    assert form.sound is True
    assert json.loads(form.text) == {
        "claim_id": "CLM-1",
        "amount": "4512.50",
        "cause": "fire",
        "holder": {"name": "Marta", "phone": None},
        "photos": ["one.jpg", "two.jpg"],
        "urgent": True,
    }


def test_what_was_typed_as_json_stands_in_the_form_and_starts_the_run(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    text = '{"claim_id": "CLM-2", "amount": 12.5, "holder": {"name": "Ann"}, "photos": ["a"]}'
    form = shown(client, mode="json", json=text, view="form")
    assert form.mode == "form"
    fields = fields_of(form)
    assert fields["claim_id"] == "CLM-2"
    assert fields["amount"] == 12.5
    assert fields["holder.name"] == "Ann"
    assert fields["photos"] == "a"
    typed = {
        "i.claim_id": "CLM-3",
        "i.amount": "12.5",
        "i.holder.name": "Ann",
        "i.photos": "a",
    }
    assert (
        client.post(URL, {"mode": "form", "base": form.base, **typed}).status_code
        == 302
    )
    assert unpack_json(Run.objects.get().input)["claim_id"] == "CLM-3"


def test_what_is_not_typed_yet_keeps_nobody_from_the_other_view(
    claim_graph: None, people: People, browse: Browse
) -> None:
    form = shown(
        browse(people.starter),
        **{"mode": "form", "i.claim_id": "CLM-1", "i.amount": "", "view": "json"},
    )
    assert form.mode == "json"
    assert json.loads(form.text)["claim_id"] == "CLM-1"
    assert not form.stays


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '{"odd": 1}',
        '{"letter": {"file": "018f0000-0000-7000-8000-000000000000", "name": "x",'
        ' "size": 1, "sha256": "x"}}',
        '{"holder": {"odd": 1}}',
    ],
)
def test_what_the_form_would_lose_stays_in_the_json(
    text: str, claim_graph: None, people: People, browse: Browse
) -> None:
    form = shown(browse(people.starter), mode="json", json=text, view="form")
    assert form.mode == "json"
    assert form.text == text
    assert form.stays is True
    assert form.text_error


@pytest.mark.parametrize(
    "text",
    [
        '{"amount": [], "holder": 5, "photos": {"a": 1}, "urgent": "yes", "cause":'
        ' "flood", "claim_id": null}',
        '{"amount": 99999999999999999999999999999, "claim_id": "a\\u0000b", "photos":'
        ' ["", 1, [2]]}',
        '{"amount": 1e999}',
        '{"claim_id": "\\ud800"}',
        '{"holder": ' + "[" * 90 + "]" * 90 + "}",
        '{"holder": {"name": "' + "x" * 100_000 + '"}}',
    ],
)
def test_whatever_is_typed_as_json_is_carried_or_stays(
    text: str, claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    form = shown(client, mode="json", json=text, view="form")
    if form.stays:
        assert form.text == text
    else:
        assert json.loads(form.base) == json.loads(text)


def test_a_file_that_was_chosen_is_carried_both_ways(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    letter = SimpleUploadedFile("letter.txt", b"dear")
    text = shown(client, **{**GOOD, "i.letter": letter, "view": "json"}).text
    assert json.loads(text)["letter"]["name"] == "letter.txt"
    form = shown(client, mode="json", json=text, view="form")
    assert form.mode == "form"
    assert fields_of(form)["letter"]["name"] == "letter.txt"


def test_a_base_that_is_none_is_refused(
    claim_graph: None, people: People, browse: Browse
) -> None:
    for base in ("{", "[]", "5"):
        answer = browse(people.starter).post(URL, {**GOOD, "base": base})
        assert answer.status_code == 422
        assert b"cannot be read. Open it again." in answer.content


def test_a_file_whose_size_is_no_number_is_shown(
    claim_graph: None, people: People, browse: Browse
) -> None:
    for size in ('"abc"', '"12"', "[]"):
        text = (
            '{"letter": {"file": "018f0000-0000-7000-8000-000000000000",'
            f' "name": "x", "size": {size}, "sha256": "x"}}}}'
        )
        posted = {"mode": "json", "json": text, "base": text, "view": "form"}
        assert browse(people.starter).post(URL, posted).status_code == 200
