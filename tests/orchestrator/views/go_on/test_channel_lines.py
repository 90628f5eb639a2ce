"""The form: each channel one line, what changed open on top, and a search opens others."""

from typing import Any

from orchestrator.views.go_on.channel_lines import (
    OPENED_BY_SEARCH,
    ChannelLine,
    channel_lines,
)
from orchestrator.views.go_on.patch_form import fresh_form, posted_form
from tests.support.patch_points import point


def lines(
    here: Any, form: Any, *, faulty: Any = (), hits: Any = (), searched: bool = False
) -> list[ChannelLine]:
    return channel_lines(
        here, form, here.going_on, faulty=faulty, hits=hits, searched=searched
    )


def test_each_channel_is_one_closed_line_in_the_order_of_the_graph() -> None:
    here = point()
    drawn = lines(here, fresh_form(here))
    assert [line.name for line in drawn] == list(here.graph.channels)
    assert not any(
        line.is_open or line.is_changed or line.is_left_out for line in drawn
    )


def test_what_changed_and_what_is_wrong_is_open_on_top() -> None:
    here = point()
    form = posted_form(here, {"mode": "form", "d-text": "1", "s-text": "typed"})
    drawn = lines(here, form, faulty={"maybe"})
    assert [line.name for line in drawn if line.is_open] == ["maybe", "text"]
    assert [line.name for line in drawn[:2]] == ["maybe", "text"]


def test_a_search_opens_what_it_finds_and_leaves_out_the_others() -> None:
    here = point()
    drawn = lines(here, fresh_form(here), hits={"payout"}, searched=True)
    assert [line.name for line in drawn if line.is_open] == ["payout"]
    assert [line.name for line in drawn if not line.is_left_out] == ["payout"]


def test_a_search_that_finds_a_lot_opens_nothing() -> None:
    here = point()
    names = set(list(here.graph.channels)[: OPENED_BY_SEARCH + 1])
    drawn = lines(here, fresh_form(here), hits=names, searched=True)
    assert not any(line.is_open for line in drawn)
    assert {line.name for line in drawn if not line.is_left_out} == names


def test_a_large_channel_is_a_line_with_its_size_and_without_fields() -> None:
    here = point(text="x" * 9000)
    (large,) = [line for line in lines(here, fresh_form(here)) if line.name == "text"]
    assert large.control is None
    assert large.size == 9002
    assert large.text == ""


def test_operations_and_merge_patches_name_the_channels_that_they_change() -> None:
    here = point()
    for text in (
        '[{"op": "add", "path": "/scratch/notes/-", "value": "a"}]',
        '{"scratch": {"notes": ["a"]}}',
    ):
        form = posted_form(here, {"mode": "ops", "ops": text})
        assert [line.name for line in lines(here, form) if line.is_changed] == ["notes"]
