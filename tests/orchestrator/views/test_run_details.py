"""The parts of a run's page: what changed, what is pending, and every tab."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.core.diff import differences, written
from checkpoints.models import Run
from checkpoints.timeline import Change
from orchestrator.views import run_details
from tests.support.cast import People

Browse = Callable[[User], Client]


def test_what_changed_names_path_and_node(
    run: Run, people: People, browse: Browse
) -> None:
    html = (
        browse(people.starter)
        .get(reverse("run", args=[run.id]), {"at": "1"})
        .content.decode()
    )
    assert "claim CLM-1" in html
    assert '<td class="who">read</td>' in html


@pytest.mark.parametrize(
    "tab", ["changed", "state", "writes", "results", "memory", "events", "nonsense"]
)
def test_every_tab_opens(tab: str, run: Run, people: People, browse: Browse) -> None:
    page = browse(people.starter).get(reverse("run", args=[run.id]), {"tab": tab})
    assert page.status_code == 200


def test_pending_writes_are_those_held_at_that_checkpoint(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    assert (
        len(client.get(url, {"tab": "writes"}).context["page"]["detail"]["rows"]) == 3
    )
    assert (
        client.get(url, {"tab": "writes", "at": "1"}).context["page"]["detail"]["rows"]
        == []
    )


def changes_of(
    name: str, first: dict[str, Any], second: dict[str, Any]
) -> list[tuple[str, str, str]]:
    """Kind, path and new value of each line that shows how one state became the other."""
    changes = [
        Change(
            "scratch",
            written(difference.path),
            difference.kind,
            difference.before,
            difference.after,
        )
        for difference in differences(first, second)
    ]
    rows = [run_details._change(change) for change in run_details._opened(changes)]
    return [
        (row["word"], f"{row['stem']}{row['leaf']}", row["after"].text) for row in rows
    ]


def test_a_new_object_is_shown_path_by_path() -> None:
    payout = {"account": "NO93", "lines": [1], "to": {"name": "Ines"}, "a.b": {}}
    assert changes_of("new", {}, {"payout": payout}) == [
        ("added", "payout.account", '"NO93"'),
        ("added", "payout.lines", "[1]"),
        ("added", "payout.to.name", '"Ines"'),
        ("added", 'payout["a.b"]', "{}"),
    ]


def test_an_object_where_null_was_is_shown_path_by_path_and_one_where_a_number_was_is_not() -> (
    None
):
    assert changes_of("null", {"a": None}, {"a": {"b": 1}}) == [("added", "a.b", "1")]
    assert changes_of("number", {"a": 5}, {"a": {"b": 1}}) == [
        ("changed", "a", '{"b": 1}')
    ]


def test_an_object_that_went_is_shown_path_by_path() -> None:
    assert changes_of("went", {"a": {"b": 1, "c": 2}}, {}) == [
        ("removed", "a.b", "removed"),
        ("removed", "a.c", "removed"),
    ]


def test_a_text_of_several_lines_is_shown_as_text() -> None:
    row = run_details._change(
        Change("scratch", "letter", "added", None, "Dear Ines,\nwe pay.")
    )
    assert row["after_text"] == "Dear Ines,\nwe pay."
    assert (
        run_details._change(Change("scratch", "note", "added", None, "one line"))[
            "after_text"
        ]
        == ""
    )


def test_where_nothing_was_before_there_is_no_column_for_it(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    first = (
        client.get(url, {"at": "0"})
        .content.decode()
        .partition('data-test="changed"')[2]
        .partition("</table>")[0]
    )
    assert "Before" not in first
    assert "not set" not in first
