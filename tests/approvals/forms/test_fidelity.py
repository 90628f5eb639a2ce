"""A form that is posted as it was drawn gives the value that it was drawn from,
whatever the value.
"""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from approvals.forms import controls, reading
from orchestrator.engine import FileRef

TEXTS = st.sampled_from(
    [
        "",
        " ",
        "a",
        " a ",
        "a\nb",
        "a\r\nb",
        "\na",
        "12",
        "x" * 90,
        "\u202e",
        "1\n\n2",
        "a,b",
    ]
) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6
)


class Inner(BaseModel):
    a: str = "default"
    b: str | None = "default"
    c: int | None = 3


class Everything(BaseModel):
    text: str = "default"
    maybe: str | None = "default"
    count: int = 5
    ratio: float | None = 1.5
    amount: Decimal | None = Decimal("2.50")
    day: date | None = date(2026, 1, 1)
    at: datetime | None = None
    clock: time | None = None
    kind: Literal["a", "b", "a_b", "a b"] | None = "a"
    flag: bool | None = None
    sure: bool = True
    inner: Inner | None = Inner()
    texts: list[str] | None = ["default"]
    days: list[date] = []
    inners: list[Inner] = []
    open: dict[str, dict[str, int]] = {}
    named: dict[str, str] | None = None
    letter: FileRef | None = None


INNERS = st.builds(
    Inner, a=TEXTS, b=st.none() | TEXTS, c=st.none() | st.integers(-9, 9)
)
FILES = st.builds(
    FileRef, file=st.just("u-1"), name=TEXTS, size=st.just(1), sha256=st.just("0" * 64)
)
VALUES = st.builds(
    Everything,
    text=TEXTS,
    maybe=st.none() | TEXTS,
    ratio=st.none() | st.sampled_from([0.0, 0.1, 1e16, -2.0]),
    amount=st.none() | st.sampled_from([Decimal("0.10"), Decimal("12")]),
    day=st.none() | st.dates(),
    at=st.none() | st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    clock=st.none() | st.times(),
    kind=st.sampled_from([None, "a", "b", "a_b", "a b"]),
    flag=st.none() | st.booleans(),
    sure=st.booleans(),
    inner=st.none() | INNERS,
    texts=st.none() | st.lists(TEXTS, max_size=3),
    days=st.lists(st.dates(), max_size=2),
    inners=st.lists(INNERS, max_size=2),
    open=st.dictionaries(
        TEXTS | st.sampled_from(["a", "a.b", "b.c"]),
        st.dictionaries(TEXTS, st.integers(0, 9), max_size=2),
        max_size=3,
    ),
    named=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
    letter=st.none() | FILES,
)


def posted(root: controls.Control) -> dict[str, str]:
    """Return what a browser posts of the form as it is drawn."""
    collected = {}
    for control in root.walk():
        if control.switch:
            collected[control.name] = (
                controls.NOT_SET if control.value is None else controls.SET
            )
        if control.kind == "yes_no" and control.value is None:
            continue
        if control.kind == "radio" and control.value is None and not control.nullable:
            continue
        if (
            control.children
            or control.kind in ("group", "map", "rows", "file")
            or (control.kind == "bool" and not control.value)
        ):
            continue
        text = (
            "true"
            if control.kind == "bool"
            else ""
            if control.value is None
            else str(control.value)
        )
        if control.kind == "datetime":
            text = text[:19]
        if control.kind in ("area", "lines", "json"):
            text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
        else:
            text = text.replace("\r", "").replace("\n", "")
        collected[control.name] = (
            text.strip() if control.kind in ("email", "url") else text
        )
    return dict(parse_qsl(urlencode(collected), keep_blank_values=True))


def edited(schema: dict[str, Any], value: Any) -> Any:
    root = controls.root(schema, prefix="e-1", value=value)
    names = [control.name for control in root.walk() if not control.children]
    assert len(names) == len(set(names))
    result = reading.read_form(root, posted(root))
    assert [(error.path, error.error) for error in reading.errors(root)] == []
    return result


@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(VALUES)
def test_a_form_that_is_posted_as_drawn_changes_nothing(value: Everything) -> None:
    plain = TypeAdapter(Everything).dump_python(value, mode="json")
    result = edited(Everything.model_json_schema(), plain)
    assert Everything.model_validate(result).model_dump(mode="json") == plain


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str | None, ""),
        (str | None, None),
        (list[str], ["a\nb", ""]),
        (list[str] | None, None),
        (datetime, "2026-11-20T10:00:00Z"),
        (datetime, "2026-11-20T10:00:00.123456"),
        (dict[str, dict[str, int]], {"a": {"b.c": 1}, "a.b": {"c": 2}}),
        (FileRef | None, {"file": "u-1", "name": "a", "size": 1, "sha256": "0" * 64}),
        (Inner | None, None),
        (bool | None, None),
    ],
    ids=str,
)
def test_a_field_that_nobody_touched_keeps_its_value(
    annotation: Any, value: Any
) -> None:
    class Holder(BaseModel):
        field: annotation = None

    schema = Holder.model_json_schema()
    assert edited(schema, {"field": value}) == {"field": value}


def test_two_fields_of_a_form_never_have_one_label() -> None:
    class Amounts(BaseModel):
        amount: int
        amount_: int
        kind: Literal["a_b", "a b"] = "a b"

    root = controls.root(
        Amounts.model_json_schema(),
        prefix="e-1",
        value={"amount": 1, "amount_": 2, "kind": "a b"},
    )
    assert [child.label for child in root.children] == [
        "Amount (amount)",
        "Amount (amount_)",
        "Kind",
    ]
    assert root.children[2].choices == [("a_b", "A b (a_b)"), ("a b", "A b (a b)")]


def test_a_key_that_one_would_not_see_is_quoted() -> None:
    root = controls.root(
        {"type": "object", "additionalProperties": {"type": "string"}},
        prefix="e-1",
        value={"": "a", " ": "b", "c": "c"},
    )
    assert [child.label for child in root.children] == ['""', '" "', "c"]
