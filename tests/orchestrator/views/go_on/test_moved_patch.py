"""A patch taken along to another checkpoint: what applies there stays, what does not is
listed.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from checkpoints import timeline
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.views.go_on.moved_patch import moved_patch
from orchestrator.views.go_on.state_changes import MOST
from tests.support import cast, run_actions
from tests.support import patch_points as points
from tests.support.page_forms import fields_of
from tests.support.paid_claims import paid

Browse = Callable[[User], Client]


def moved(
    before: dict[str, Any], patch: Any, there: dict[str, Any], *, mode: str = "json"
) -> Any:
    return moved_patch(points.point(**before), patch, points.point(**there), mode=mode)


def test_what_is_changed_stays_changed_and_nothing_else_does() -> None:
    patch = [
        {"op": "replace", "path": "/payout/account", "value": "DE2"},
        {"op": "add", "path": "/notes/-", "value": "c"},
    ]
    before = {
        "payout": {"amount": "1", "account": "DE1", "paid": False},
        "notes": ["a"],
    }
    there = {
        "payout": {"amount": "2", "account": "DE1", "paid": True},
        "notes": ["a", "b"],
    }
    move = moved(before, {"scratch": patch}, there)
    assert move.fallen == []
    assert move.form.mode == "json"
    by_path = {
        operation["path"]: operation["value"]
        for operation in move.form.patch["scratch"]
    }
    assert by_path == {"/payout/account": "DE2", "/notes/-": "c"}


def test_what_is_not_there_or_is_so_already_falls_away_with_the_reason() -> None:
    before = {
        "payout": {"amount": "1", "account": "DE1", "paid": False},
        "notes": ["a", "b"],
        "text": "x",
    }
    patch = [
        {"op": "replace", "path": "/payout/account", "value": "DE2"},
        {"op": "replace", "path": "/notes/1", "value": "z"},
        {"op": "replace", "path": "/text", "value": "y"},
    ]
    move = moved(before, {"scratch": patch}, {"payout": None, "notes": [], "text": "y"})
    assert move.form.patch == {}
    assert [(item.path, item.value, item.rule) for item in move.fallen] == [
        ("scratch.notes[1]", "z", "It is not there at checkpoint 1."),
        ("scratch.payout.account", "DE2", "It is not there at checkpoint 1."),
        ("scratch.text", "y", "It is so already at checkpoint 1."),
    ]


def test_items_that_are_removed_keep_the_places_of_the_others() -> None:
    patch = {"scratch": [{"op": "replace", "path": "/notes", "value": ["a"]}]}
    move = moved(
        {"notes": ["a", "b", "c"]},
        patch,
        {"notes": ["x", "y", "z", "more"]},
        mode="ops",
    )
    assert move.fallen == []
    assert move.form.patch["scratch"] == [
        {"op": "remove", "path": "/notes/2"},
        {"op": "remove", "path": "/notes/1"},
    ]
    assert move.form.mode == "ops"


def test_a_patch_of_very_many_places_is_moved_by_channels() -> None:
    values = [str(n) for n in range(MOST + 1)]
    patch = {"scratch": [{"op": "replace", "path": "/notes", "value": values}]}
    assert (
        moved({"notes": []}, patch, {"notes": ["q"]}).form.patch["scratch"][0]["value"]
        == values
    )


def test_a_channel_that_the_other_point_has_not_falls_away() -> None:
    there = points.point()
    del there.graph.channels["text"]
    there.going_on["scratch"].pop("text")
    there.graph = SimpleNamespace(channels=there.graph.channels, version="2")
    move = moved_patch(points.point(), {"scratch": {"text": "new"}}, there, mode="json")
    assert [item.rule for item in move.fallen] == ["Version 2 has no such channel."]


def url(run: Run, seq: int) -> str:
    return f"/checkpoints/{timeline.get_checkpoint(f'{run.key}:at-{seq}').id}/go-on/"


@pytest.mark.django_db(transaction=True)
def test_moving_the_starting_point_keeps_what_was_typed_and_lists_what_fell_away(
    people: cast.People, browse: Browse
) -> None:
    run = paid("moving", people)
    client = browse(people.starter)
    fields = fields_of(client.get(url(run, 3), follow=True).content.decode())
    here = url(run, 3).split("/")[2]
    typed = fields | {
        "s-letter": "dear",
        "s-notes": "first\nsecond",
        "reason": "because",
        "moved": here,
    }
    html = client.post(url(run, 1), typed).content.decode()
    after = fields_of(html)
    assert after["s-letter"] == "dear"
    assert after["s-notes"] == "first\r\nsecond".replace("\r", "")
    assert after["reason"] == "because"
    assert 'data-test="fallen"' not in html
    html = client.post(
        url(run, 0),
        {
            **fields,
            "mode": "json",
            "json": '{"scratch": {"letter": "", "notes": ["other"], "total": "x"}}',
            "moved": here,
        },
    ).content.decode()
    fell = html.split('data-test="fallen"')[1].split("</ul>")[0]
    for said in (
        "scratch.total",
        "scratch.notes[0]",
        "It is not there at checkpoint 0.",
    ):
        assert said in fell
    new_run = runs.advance(
        client.post(url(run, 1), {**after, "do": "go"}).url.split("/")[2]
    )
    assert run_actions.state(new_run)["letter"] == "dear"


@pytest.mark.django_db(transaction=True)
def test_a_patch_from_a_checkpoint_of_another_run_is_not_read(
    people: cast.People, browse: Browse
) -> None:
    other = paid("foreign", people)
    run = paid("own", people)
    client = browse(people.starter)
    fields = fields_of(client.get(url(run, 3), follow=True).content.decode()) | {
        "s-letter": "dear"
    }
    for moved_from in (
        url(other, 1).split("/")[2],
        "nonsense",
        "0198c0de-0000-7000-8000-000000000000",
    ):
        html = client.post(url(run, 1), fields | {"moved": moved_from}).content.decode()
        assert "can no longer be opened" in html
        assert fields_of(html)["s-letter"] == ""
