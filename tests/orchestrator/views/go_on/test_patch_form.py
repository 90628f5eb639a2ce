"""The patch as it is typed: nothing changes where nobody types, and what would fit can be put in its place."""

from typing import Any

import pytest

from approvals.forms import controls
from orchestrator.engine.patch import patched
from orchestrator.views.go_on.patch_form import Problem, fresh_form, mended_form, posted_form
from tests.support.patch_points import point


def typed(form: Any) -> dict[str, str]:
    """What a browser sends of the form where nobody types."""
    found = {"mode": "form"} | {f"d-{name}": "1" for name in form.drawn}
    for control in form.drawn.values():
        for one in control.walk():
            found |= sent_of(one)
    return found


def sent_of(control: Any) -> dict[str, str]:
    """What a browser sends of one control: nothing for a box without a tick, and for radio buttons without a choice."""
    text = "" if control.value is None else str(control.value)
    if control.switch:
        return {control.name: controls.NOT_SET if control.value is None else controls.SET}
    if control.kind == "bool":
        return {control.name: "true"} if control.value else {}
    if control.kind == "radio":
        return {control.name: text} if control.nullable or control.value is not None else {}
    return {} if control.children else {control.name: text.replace("\n", "\r\n")}


VALUES: list[dict[str, Any]] = [
    {},
    {"maybe": None},
    {"receipt": {"status": "sent", "number": 1, "way": ""}, "route": "small"},
    {"payout": {"amount": "12.50", "account": " DE89 ", "paid": True}},
    {"more": [{"amount": "1", "account": "a", "paid": False}, {"amount": "2", "account": "", "paid": True}]},
    {"anything": {"a.b": [1, 2.0, None], "": {"x": "\u202e"}}},
    {"notes": ["one", "two\nlines", ""], "text": "a\nb", "letter": "x" * 100},
]


@pytest.mark.parametrize("state", VALUES)
@pytest.mark.parametrize("mode", ["form", "json", "ops"])
def test_where_nobody_types_nothing_changes(state: dict[str, Any], mode: str) -> None:
    here = point(**state)
    form = fresh_form(here)
    sent = typed(form) | {"mode": mode, "json": form.text, "ops": form.operations}
    found = posted_form(here, sent)
    assert (found.patch, found.problems) == ({}, [])


def test_an_object_that_is_not_set_can_be_set_field_by_field() -> None:
    here = point()
    fields = {"s-receipt": controls.SET, "s-receipt.status": "sent", "s-receipt.number": "3"}
    form = posted_form(here, typed(fresh_form(here)) | fields)
    assert form.problems == []
    after = patched(here.going_on, form.patch, graph=here.graph)
    assert after["scratch"]["receipt"] == {"status": "sent", "number": 3, "way": ""}


def test_an_object_that_is_set_without_its_fields_is_a_problem_of_these_fields() -> None:
    here = point()
    form = posted_form(here, typed(fresh_form(here)) | {"s-receipt": controls.SET})
    paths = [problem.path for problem in form.problems]
    assert paths == ["scratch.receipt.status", "scratch.receipt.number"]


def test_an_object_that_is_set_can_be_taken_away() -> None:
    here = point(receipt={"status": "sent", "number": 1, "way": "mail"})
    form = posted_form(here, typed(fresh_form(here)) | {"s-receipt": controls.NOT_SET})
    assert form.problems == []
    assert patched(here.going_on, form.patch, graph=here.graph)["scratch"]["receipt"] is None


def test_the_empty_text_of_a_choice_can_be_chosen() -> None:
    here = point(route="small")
    form = posted_form(here, typed(fresh_form(here)) | {"s-route": ""})
    assert form.problems == []
    assert patched(here.going_on, form.patch, graph=here.graph)["scratch"]["route"] == ""


def test_a_field_of_an_object_takes_the_place_of_the_whole_object() -> None:
    here = point(payout={"amount": "12.50", "account": "a", "paid": True})
    sent = typed(fresh_form(here)) | {"s-payout.amount": "13.00"}
    found = posted_form(here, sent)
    after = patched(here.going_on, found.patch, graph=here.graph)
    assert after["scratch"]["payout"] == {"amount": "13.00", "account": "a", "paid": True}


def test_a_large_value_is_neither_sent_nor_lost() -> None:
    here = point(text="x" * 9000)
    form = fresh_form(here)
    assert [(one.path, one.size) for one in form.folded] == [("scratch.text", 9002)]
    assert ("text" in form.drawn, "x" * 100 in form.text) == (False, False)
    found = posted_form(here, typed(form) | {"mode": "json", "json": form.text})
    assert (found.patch, found.problems) == ({}, [])
    ops = '[{"op": "replace", "path": "/scratch/text", "value": "short"}]'
    assert patched(here.going_on, posted_form(here, {"mode": "ops", "ops": ops}).patch)["scratch"]["text"] == "short"


@pytest.mark.parametrize("mode", ["form", "json", "ops"])
def test_what_would_fit_is_put_in_its_place_however_it_was_typed(mode: str) -> None:
    here = point(payout={"amount": "12.50", "account": "a", "paid": True})
    sent = typed(fresh_form(here)) | {"mode": mode, "s-payout.amount": "many", "s-text": "kept"}
    sent["json"] = '{"scratch": {"payout": {"amount": "many", "account": "a", "paid": true}, "text": "kept"}}'
    sent["ops"] = '[{"op": "replace", "path": "/scratch/payout/amount", "value": "many"},' + (
        '{"op": "add", "path": "/scratch/text", "value": "kept"}]'
    )
    form = posted_form(here, sent)
    problem = Problem("scratch.payout.amount", "a number", '"many"', ("14.00",), "payout")
    found = mended_form(form, here, problem)
    assert (found.mode, found.problems) == (mode, [])
    after = patched(here.going_on, found.patch, graph=here.graph)["scratch"]
    assert (after["payout"]["amount"], after["payout"]["paid"], after["text"]) == ("14.00", True, "kept")
    again = posted_form(here, typed(found) | {"mode": mode, "json": found.text, "ops": found.operations})
    assert patched(here.going_on, again.patch, graph=here.graph)["scratch"] == after


@pytest.mark.parametrize(
    ("mode", "text", "path"),
    [
        ("json", "{", "json"),
        ("json", "[]", "json"),
        ("json", '{"input": {"a": 1}}', "input"),
        ("json", '{"scratch": 3}', "scratch"),
        ("json", '{"scratch": {"unknown": 3}}', "scratch.unknown"),
        ("ops", '{"diagnostics": {}}', "diagnostics"),
        ("ops", '[{"op": "add", "path": "/input/a", "value": 1}]', "operations[0]: /input"),
        ("ops", '[{"op": "move", "path": "/scratch/a", "from": "/artifacts/b"}]', "operations[0]: /artifacts"),
        ("ops", '["x"]', "operations[0]"),
        ("ops", "3", "operations"),
    ],
)
def test_what_cannot_be_a_patch_is_refused_with_its_place(mode: str, text: str, path: str) -> None:
    here = point()
    found = posted_form(here, {"mode": mode, "json": text, "ops": text})
    assert [one.path for one in found.problems if one.path == path] == [path]
    assert all(one.rule for one in found.problems)
