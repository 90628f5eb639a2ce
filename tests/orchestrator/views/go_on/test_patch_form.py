"""The patch as it is typed: nothing changes where nobody types, and what would fit can
be put in its place.
"""

import json
from typing import Any

import pytest

from approvals.forms import controls
from orchestrator.engine.travel.patch import patched
from orchestrator.views.go_on.patch_form import (
    Problem,
    form_of_change,
    fresh_form,
    mended_form,
    posted_form,
)
from tests.support.patch_points import point


def typed(form: Any) -> dict[str, str]:
    """Return what a browser sends of the form where nobody types."""
    fields = {"mode": "form", "base": form.base} | {
        f"d-{name}": "1" for name in form.drawn
    }
    for control in form.drawn.values():
        for inner in control.walk():
            fields |= sent_of(inner)
    return fields


def sent_of(control: Any) -> dict[str, str]:
    """Return what a browser sends of one control: nothing for a box without a tick, and
    for radio buttons without a choice.
    """
    text = "" if control.value is None else str(control.value)
    if control.switch:
        return {
            control.name: controls.NOT_SET if control.value is None else controls.SET
        }
    if control.kind == "bool":
        return {control.name: "true"} if control.value else {}
    if control.kind == "yes_no":
        return {} if control.value is None else {control.name: text}
    if control.kind == "radio":
        return (
            {control.name: text}
            if control.nullable or control.value is not None
            else {}
        )
    return {} if control.children else {control.name: text.replace("\n", "\r\n")}


VALUES: list[dict[str, Any]] = [
    {},
    {"maybe": None},
    {"receipt": {"status": "sent", "number": 1, "way": ""}, "route": "small"},
    {"payout": {"amount": "12.50", "account": " DE89 ", "paid": True}},
    {
        "more": [
            {"amount": "1", "account": "a", "paid": False},
            {"amount": "2", "account": "", "paid": True},
        ]
    },
    {"anything": {"a.b": [1, 2.0, None], "": {"x": "\u202e"}}},
    {"notes": ["one", "two\nlines", ""], "text": "a\nb", "letter": "x" * 100},
]


@pytest.mark.parametrize("state", VALUES)
@pytest.mark.parametrize("mode", ["form", "json", "ops"])
def test_where_nobody_types_nothing_changes(state: dict[str, Any], mode: str) -> None:
    here = point(**state)
    form = fresh_form(here)
    form_again = posted_form(
        here, typed(form) | {"mode": mode, "json": form.text, "ops": form.operations}
    )
    assert form_again.patch == {}
    assert form_again.problems == []


def test_an_object_that_is_not_set_can_be_set_field_by_field() -> None:
    here = point()
    fields = {
        "s-receipt": controls.SET,
        "s-receipt.status": "sent",
        "s-receipt.number": "3",
    }
    form = posted_form(here, typed(fresh_form(here)) | fields)
    assert form.problems == []
    assert after(here, form)["scratch"]["receipt"] == {
        "status": "sent",
        "number": 3,
        "way": "",
    }


def test_an_object_that_is_set_without_its_fields_is_a_problem_of_these_fields() -> (
    None
):
    here = point()
    form = posted_form(here, typed(fresh_form(here)) | {"s-receipt": controls.SET})
    paths = [problem.path for problem in form.problems]
    assert paths == ["scratch.receipt.status", "scratch.receipt.number"]


def test_an_object_that_is_set_can_be_taken_away() -> None:
    here = point(receipt={"status": "sent", "number": 1, "way": "mail"})
    form = posted_form(here, typed(fresh_form(here)) | {"s-receipt": controls.NOT_SET})
    assert form.problems == []
    assert (
        patched(here.going_on, form.patch, graph=here.graph)["scratch"]["receipt"]
        is None
    )


def test_the_empty_text_of_a_choice_can_be_chosen() -> None:
    here = point(route="small")
    form = posted_form(here, typed(fresh_form(here)) | {"s-route": ""})
    assert form.problems == []
    assert (
        patched(here.going_on, form.patch, graph=here.graph)["scratch"]["route"] == ""
    )


def test_a_field_of_an_object_takes_the_place_of_the_whole_object() -> None:
    here = point(payout={"amount": "12.50", "account": "a", "paid": True})
    form_again = posted_form(
        here, typed(fresh_form(here)) | {"s-payout.amount": "13.00"}
    )
    state = after(here, form_again)
    assert state["scratch"]["payout"] == {
        "amount": "13.00",
        "account": "a",
        "paid": True,
    }


def test_a_large_value_is_neither_sent_nor_lost() -> None:
    here = point(text="x" * 9000)
    form = fresh_form(here)
    assert [(one.path, one.size) for one in form.folded] == [("scratch.text", 9002)]
    assert "text" not in form.drawn
    assert "x" * 100 not in form.text
    form_again = posted_form(here, typed(form) | {"mode": "json", "json": form.text})
    assert form_again.patch == {}
    assert form_again.problems == []
    ops = '[{"op": "replace", "path": "/scratch/text", "value": "short"}]'
    assert (
        patched(here.going_on, posted_form(here, {"mode": "ops", "ops": ops}).patch)[
            "scratch"
        ]["text"]
        == "short"
    )


@pytest.mark.parametrize("mode", ["form", "json", "ops"])
def test_what_would_fit_is_put_in_its_place_however_it_was_typed(mode: str) -> None:
    here = point(payout={"amount": "12.50", "account": "a", "paid": True})
    fields = typed(fresh_form(here)) | {
        "mode": mode,
        "s-payout.amount": "many",
        "s-text": "kept",
    }
    fields["json"] = (
        '{"scratch": {"payout": {"amount": "many", "account": "a", "paid": true}, "text": "kept"}}'
    )
    fields["ops"] = (
        '[{"op": "replace", "path": "/scratch/payout/amount", "value": "many"},'
        + ('{"op": "add", "path": "/scratch/text", "value": "kept"}]')
    )
    form = posted_form(here, fields)
    problem = Problem(
        "scratch.payout.amount", "a number", '"many"', ("14.00",), "payout"
    )
    mended = mended_form(form, here, problem)
    assert mended.mode == mode
    assert mended.problems == []
    state = after(here, mended)["scratch"]
    assert state["payout"]["amount"] == "14.00"
    assert state["payout"]["paid"] is True
    assert state["text"] == "kept"
    again = posted_form(
        here,
        typed(mended) | {"mode": mode, "json": mended.text, "ops": mended.operations},
    )
    assert after(here, again)["scratch"] == state


def sent(form: Any) -> dict[str, str]:
    """Return what a browser sends of the view that is shown."""
    hidden = {"mode": form.mode, "base": form.base}
    if form.mode == "form":
        return typed(form)
    return hidden | (
        {"json": form.text} if form.mode == "json" else {"ops": form.operations}
    )


def after(here: Any, form: Any) -> dict[str, Any]:
    """The state that the form's patch makes."""
    state: dict[str, Any] = patched(here.going_on, form.patch, graph=here.graph)
    return state


VIEWS = ["form", "json", "ops"]
CHANGES: list[dict[str, Any]] = [
    {"text": "typed"},
    {"payout": {"amount": "13.00", "account": "DE2", "paid": False}},
    {"payout": None, "receipt": {"status": "sent", "number": 2, "way": "mail"}},
    {
        "more": [
            {"amount": "1", "account": "a", "paid": False},
            {"amount": "2", "account": "b", "paid": True},
        ]
    },
    {"anything": {"a.b": [1], "c/d": {"x": None}}, "notes": ["a", "c"]},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("first", VIEWS)
@pytest.mark.parametrize("second", VIEWS)
def test_changing_the_view_carries_over_what_was_typed(
    change: dict[str, Any], first: str, second: str
) -> None:
    here = point(
        payout={"amount": "12.50", "account": "DE1", "paid": True}, notes=["a", "b"]
    )
    wanted = {part: dict(here.going_on[part]) for part in here.going_on}
    wanted["scratch"] |= change
    form = form_of_change(here, wanted, mode=first)
    for view in (second, "form", "json", "ops", first):
        form = posted_form(here, sent(form) | {"view": view})
        assert form.mode == view
        assert form.problems == []
        assert after(here, form)["scratch"] == wanted["scratch"]
        # Nothing is typed into the view that was just drawn.
        again = posted_form(here, sent(form))
        assert after(here, again)["scratch"] == wanted["scratch"]


def test_what_is_typed_in_each_view_adds_to_what_was_typed_in_the_others() -> None:
    here = point()
    form = posted_form(
        here, typed(fresh_form(here)) | {"s-text": "by form", "view": "json"}
    )
    text = json.loads(form.text)
    text["scratch"]["notes"] = ["by json"]
    form = posted_form(here, sent(form) | {"json": json.dumps(text), "view": "ops"})
    operations = [
        *json.loads(form.operations),
        {"op": "replace", "path": "/artifacts/letter", "value": "by operation"},
    ]
    form = posted_form(
        here, sent(form) | {"ops": json.dumps(operations), "view": "form"}
    )
    state = after(here, form)
    assert state["scratch"]["text"] == "by form"
    assert state["scratch"]["notes"] == ["by json"]
    assert state["artifacts"]["letter"] == "by operation"
    back = posted_form(here, typed(form) | {"s-text": ""})
    assert after(here, back)["scratch"] == here.going_on["scratch"] | {
        "notes": ["by json"]
    }


def test_a_value_that_does_not_fit_is_carried_over_too() -> None:
    here = point()
    text = {
        "scratch": {**here.going_on["scratch"], "maybe": "many"},
        "artifacts": here.going_on["artifacts"],
    }
    form = posted_form(here, {"mode": "json", "json": json.dumps(text), "view": "form"})
    assert form.mode == "form"
    assert form.drawn["maybe"].value == '"many"'
    assert posted_form(here, typed(form)).patch == {
        "scratch": [{"op": "replace", "path": "/maybe", "value": "many"}]
    }


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("json", '{"scratch": {"text": "typed"}'),
        ("json", '{"scratch": {"text": "typed", "unknown": 1}}'),
        ("json", '{"input": {}}'),
        ("json", '{"scratch": {"text": "\\ud800"}}'),
        ("ops", "["),
        ("ops", '[{"op": "replace", "path": "/scratch/payout/account", "value": "x"}]'),
        ("ops", '[{"op": "add", "path": "/input/a", "value": 1}]'),
    ],
)
def test_what_cannot_be_read_keeps_its_view_and_its_text(mode: str, text: str) -> None:
    here = point()
    form = posted_form(here, {"mode": mode, "json": text, "ops": text, "view": "form"})
    assert form.mode == mode
    assert form.stays is True
    assert (form.text if mode == "json" else form.operations) == text


def test_a_field_that_cannot_be_read_keeps_its_view_and_its_text() -> None:
    here = point()
    form = posted_form(
        here, typed(fresh_form(here)) | {"s-maybe": "many", "view": "json"}
    )
    assert form.mode == "form"
    assert form.stays is True
    assert form.drawn["maybe"].value == "many"


@pytest.mark.parametrize(
    "base",
    [
        "[",
        "{}",
        "3",
        '[{"op": "test"}]',
        '[{"op": "add", "path": "/input/a", "value": 1}]',
    ],
)
def test_a_page_that_does_not_tell_over_what_it_was_drawn_is_a_problem(
    base: str,
) -> None:
    here = point()
    assert [
        problem.path
        for problem in posted_form(here, {"mode": "form", "base": base}).problems
    ] == ["patch"]


def test_a_large_value_is_not_sent_with_the_patch_that_changes_a_part_of_it() -> None:
    here = point(anything={"long": "x" * 9000, "short": 1})
    operations = '[{"op": "replace", "path": "/scratch/anything/short", "value": 2}]'
    form = posted_form(here, {"mode": "ops", "ops": operations, "view": "json"})
    assert len(form.base) < 200
    assert after(here, form)["scratch"]["anything"] == {"long": "x" * 9000, "short": 2}
    again = posted_form(here, sent(form) | {"view": "form"})
    assert after(here, again)["scratch"]["anything"]["short"] == 2


@pytest.mark.parametrize(
    ("mode", "text", "path"),
    [
        ("json", "{", "json"),
        ("json", "[]", "json"),
        ("json", '{"input": {"a": 1}}', "input"),
        ("json", '{"scratch": 3}', "scratch"),
        ("json", '{"scratch": {"unknown": 3}}', "scratch.unknown"),
        ("ops", '{"diagnostics": {}}', "diagnostics"),
        (
            "ops",
            '[{"op": "add", "path": "/input/a", "value": 1}]',
            "operations[0]: /input",
        ),
        (
            "ops",
            '[{"op": "move", "path": "/scratch/a", "from": "/artifacts/b"}]',
            "operations[0]: /artifacts",
        ),
        ("ops", '["x"]', "operations[0]"),
        ("ops", "3", "operations"),
    ],
)
def test_what_cannot_be_a_patch_is_refused_with_its_place(
    mode: str, text: str, path: str
) -> None:
    here = point()
    form_again = posted_form(here, {"mode": mode, "json": text, "ops": text})
    assert [
        problem.path for problem in form_again.problems if problem.path == path
    ] == [path]
    assert all(problem.rule for problem in form_again.problems)
