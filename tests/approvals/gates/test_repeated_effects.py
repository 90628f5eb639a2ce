"""Effects that a run would have a second time, as its relatives had them already."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import strip_tags

from approvals.gates.repeated_effects import Repeats, repeated_effects
from checkpoints import timeline
from checkpoints.models import TaskResult
from orchestrator import runs
from tests.support import cast
from tests.support.paid_claims import paid

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


def text_of(client: Client, path: str) -> str:
    """The words of a page, with a bar between any two pieces."""
    answer = client.get(path)
    assert answer.status_code == 200
    html = answer.content.decode().split("<main")[1]
    return " ".join(
        strip_tags(html.replace("<", "|<").replace("&#x27;", "'"))
        .replace("|", " ")
        .split()
    )


def test_the_inbox_says_of_a_patch_what_would_happen_a_second_time(
    people: cast.People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    settled = timeline.list_checkpoints(paid("second", people).id)[1]
    patch = {"scratch": {"total": 9999}}
    stops = runs.advance(runs.fork(settled.id, patch=patch, by=people.starter).id)
    again = runs.advance(
        runs.fork(settled.id, patch=patch, allow_effects=["pay"], by=people.starter).id
    )
    client = browse(people.reviewer)
    rows = {row.run.id: row for row in client.get("/reviews/").context["rows"]}
    assert rows[again.id].repeats == Repeats(again=("pay",))
    assert rows[stops.id].repeats == Repeats(stopped=("pay",))
    text = text_of(client, "/reviews/")
    assert "pay happened already: a second time" in text
    assert "pay happened already: the run stops before it" in text
    with django_assert_max_num_queries(2):
        assert len(repeated_effects([stops, again])) == 2


def test_what_this_line_has_done_itself_and_what_lies_before_it_is_no_second_time(
    people: cast.People,
) -> None:
    run = paid("first", people)
    before = timeline.list_checkpoints(run.id)[1]
    after = timeline.list_checkpoints(run.id)[0]
    again = runs.advance(
        runs.fork(before.id, patch=None, allow_effects=["pay"], by=people.starter).id
    )
    assert again.status == "completed"
    behind = runs.fork(after.id, by=people.starter)
    assert repeated_effects([run, again, behind]) == {}


def test_what_a_grandparent_or_a_sibling_did_is_named_as_well(
    people: cast.People, django_assert_num_queries: Any
) -> None:
    origin = paid("grand", people)
    before = timeline.list_checkpoints(origin.id)[1]
    patch = {"scratch": {"total": 9999}}
    parent = runs.advance(
        runs.fork(before.id, patch=patch, allow_effects=["pay"], by=people.starter).id
    )
    first = timeline.list_checkpoints(parent.id)[-1]
    child = runs.advance(
        runs.fork(first.id, allow_effects=["pay"], by=people.starter).id
    )
    sibling = runs.fork(
        before.id, patch=patch, allow_effects=["pay"], by=people.starter
    )
    other = paid("no_relative", people)
    assert repeated_effects([other]) == {}
    with django_assert_num_queries(2):
        named = repeated_effects([parent, child, sibling])
    assert named == dict.fromkeys(
        (parent.id, child.id, sibling.id), Repeats(again=("pay",))
    )


def test_an_effect_of_a_sibling_alone_is_named(people: cast.People) -> None:
    origin = paid("alone", people)
    start = timeline.list_checkpoints(origin.id)[-1]
    fork = runs.fork(start.id, allow_effects=["pay"], by=people.starter)
    TaskResult.objects.filter(run=origin.id).update(
        run=runs.fork(start.id, by=people.starter).id, line=1
    )
    assert repeated_effects([fork]) == {fork.id: Repeats(again=("pay",))}
