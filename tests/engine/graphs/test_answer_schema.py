"""The schema of an answer: what is refused when it is asked, and what fits it."""

from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from orchestrator.engine import END, START, Gate, Graph, play
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs import answer_schema
from orchestrator.engine.graphs.answer_schema import faults_of, one_budget, schema_of
from tests.engine.small import Nothing

Share = Annotated[Decimal, Field(ge=0, le=100)]


class Aliased(BaseModel):
    due: str = Field(alias="dueOn")


class Offer(BaseModel):
    share: Share


class Owed(BaseModel):
    amount: Decimal | None = None


def answered(schema: Any, answer: Any) -> Any:
    """Return what is kept of an answer to a question for an amount with this schema."""
    graph = Graph("owed", input=Nothing, state=Owed)
    gate = Gate(reviewers=["user:ann"])
    graph.node("ask", effect="human", gate=gate)(
        lambda state, ctx: ctx.ask("amount", "How much?", schema)
    )
    graph.edge(START, "ask")
    graph.edge("ask", END)
    played = play(graph, {}, decisions=lambda request: {0: ("edit", answer)})
    assert played.status == "completed", played.error
    return played.state.amount


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"$ref": "#/$defs/missing"}, "#/\\$defs/missing, which it does not have"),
        ({"properties": {"a": {"$ref": "#b"}}}, "#b, which it does not have"),
        ({"allOf": [{"$ref": "#/title"}], "title": "a"}, "which is no schema"),
        ({"enum": ["a"], "not": {"$ref": "#/enum/a"}}, "does not have"),
        ({"$ref": "#/const", "const": {"type": 1}}, "is no JSON Schema"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"items": {"$dynamicRef": "other.json"}}, "refers to another document"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_where_it_is_asked(
    schema: Any, fault: str
) -> None:
    with pytest.raises(InvalidValue, match=fault):
        schema_of(schema, of_decimal=False)


def test_a_schema_may_contain_itself() -> None:
    tree = {"properties": {"left": {"$ref": "#"}}, "type": "object"}
    schema = schema_of(tree, of_decimal=False)
    assert faults_of(schema, {"left": {"left": {}}}) == []
    assert len(faults_of(schema, {"left": {"left": 1}})) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "elsewhere"}},
        {"required": ["$ref"], "properties": {"a": {"default": {"$ref": "b"}}}},
    ],
)
def test_a_property_of_that_name_is_no_reference(schema: Any) -> None:
    assert schema_of(schema, of_decimal=False) == schema


def test_a_schema_that_leads_back_to_itself_for_some_values_refuses_these() -> None:
    schema = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
    stored = schema_of(schema, of_decimal=False)
    assert faults_of(stored, None) == []
    with pytest.raises(InvalidValue, match="leads back to itself"):
        faults_of(stored, 1)


def test_a_type_is_answered_by_the_names_of_its_fields() -> None:
    schema = schema_of(Aliased, of_decimal=False)
    assert faults_of(schema, {"due": "today"}) == []


@pytest.mark.parametrize(
    ("schema", "fits", "fault"),
    [
        (Share, "100.00", "100.01"),
        (Share | None, "0", "-1"),
        (Annotated[Decimal, Field(gt=0, lt=1)], "0.5", "1"),
        (Annotated[Decimal, Field(multiple_of=5)], "15", "7"),
        ({"type": "number", "maximum": 50}, "50.0", "1E+1000"),
        ({"type": "integer"}, "7", "7.5"),
        ({"type": ["number", "null"], "minimum": 3}, "3", "2.99"),
        ({"minimum": 3}, "3", "2"),
    ],
)
def test_the_bounds_of_an_amount_are_kept(schema: Any, fits: str, fault: str) -> None:
    assert answered(schema, fits) == Decimal(fits)
    with pytest.raises(InvalidValue, match="does not fit what was asked"):
        answered(schema, fault)


def test_an_amount_within_a_type_keeps_its_bounds() -> None:
    schema = schema_of(Offer, of_decimal=False)
    assert faults_of(schema, {"share": "12.5"}) == []
    [fault] = faults_of(schema, {"share": "150"})
    assert list(fault.absolute_path) == ["share"]


def test_a_number_that_is_no_amount_is_no_text() -> None:
    schema = schema_of({"type": "number"}, of_decimal=False)
    assert len(faults_of(schema, "5")) == 1


def test_formats_are_kept() -> None:
    identity = "0189c1a6-6a5e-7c3e-8b1f-2f2d4c5e6a7b"
    assert faults_of(schema_of(UUID, of_decimal=False), identity) == []
    assert len(faults_of(schema_of(UUID, of_decimal=False), "somebody")) == 1
    day = {"type": "string", "format": "date"}
    assert len(faults_of(day, "tomorrow")) == 1


def _chain(length: int, *, within: str = "") -> dict[str, Any]:
    """A schema in which each definition refers to the next one twice."""
    definitions: dict[str, Any] = {f"a{length}": {}}
    for number in range(length):
        twice = {"allOf": [{"$ref": f"#/$defs/a{number + 1}"}] * 2}
        definitions[f"a{number}"] = twice
    first: dict[str, Any] = {"$ref": "#/$defs/a0"}
    return {
        "$defs": definitions,
        **({"properties": {within: first}} if within else first),
    }


@pytest.mark.parametrize("within", ["", "a"])
def test_references_count_as_often_as_they_are_held_against_a_value(
    within: str,
) -> None:
    schema_of(_chain(8, within=within), of_decimal=False)
    # Forty of them would never end.
    with pytest.raises(InvalidValue, match="more than 1,000 references, written out"):
        schema_of(_chain(40, within=within), of_decimal=False)


def test_a_schema_that_doubles_with_the_depth_of_a_value_refuses_deep_values() -> None:
    twice = {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    schema = schema_of({"properties": {"a": twice}}, of_decimal=False)
    assert faults_of(schema, {"a": {"a": {}}}) == []
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"a": value}
    with pytest.raises(InvalidValue, match="takes too long"):
        faults_of(schema, value)


def test_a_chain_without_an_end_in_sight_is_refused() -> None:
    definitions: dict[str, Any] = {"a400": {}}
    for number in range(400):
        definitions[f"a{number}"] = {"$ref": f"#/$defs/a{number + 1}"}
    with pytest.raises(
        InvalidValue, match=r"nested too deeply|without an end|more than"
    ):
        schema_of({"$defs": definitions, "$ref": "#/$defs/a0"}, of_decimal=False)


def test_a_reference_to_much_is_followed_a_few_times_only() -> None:
    schema: dict[str, Any] = {"description": "long" * 10_000}
    for number in reversed(range(20)):
        within = "#" + "/properties/a" * number
        schema = {"properties": {"a": schema, "b": {"$ref": within}}}
    with pytest.raises(InvalidValue, match="refers to too much of itself"):
        schema_of(schema, of_decimal=False)


def test_a_schema_that_many_writes_bring_is_checked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[Any] = []
    check = answer_schema._require_schema
    monkeypatch.setattr(
        answer_schema, "_require_schema", lambda plain: checked.append(check(plain))
    )
    bounds = {"type": "integer", "maximum": 12_345}
    stored = [schema_of(dict(bounds), of_decimal=False) for _ in range(5)]
    assert len(checked) == 1
    # Nobody who changes what he got changes what others get.
    stored[0]["maximum"] = 0
    assert schema_of(bounds, of_decimal=False) == bounds

    class Once(BaseModel):
        total: int

    rows: list[Any] = []
    adapter = answer_schema.TypeAdapter
    monkeypatch.setattr(
        answer_schema, "TypeAdapter", lambda kind: rows.append(kind) or adapter(kind)
    )
    for _ in range(5):
        schema_of(Once, of_decimal=False)
    assert rows == [Once]


def test_members_of_a_list_are_told_apart_without_comparing_each_with_each() -> None:
    schema = {"uniqueItems": True}
    members = [{"id": number} for number in range(20_000)]
    assert faults_of(schema, members) == []
    assert [fault.message for fault in faults_of(schema, [*members, {"id": 7}])] == [
        "it has a member twice"
    ]


@pytest.mark.parametrize(
    ("value", "is_unique"),
    [
        ([1, 1.0], False),
        ([{"a": [1]}, {"a": [1.0]}], False),
        ([1, True, "1", None, False, 0], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
    ],
)
def test_members_are_equal_as_json_schema_says(value: Any, is_unique: bool) -> None:
    assert (faults_of({"uniqueItems": True}, value) == []) is is_unique


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"enum": ["x" * 60, *range(10_000)]}},
        {"items": {"const": list(range(10_000))}},
        {"items": {"required": [str(number) for number in range(9_000)]}},
    ],
)
def test_what_takes_longer_counts_more(schema: Any) -> None:
    # So that a fault does not end it.
    either = {"anyOf": [schema, {}]}
    with pytest.raises(InvalidValue, match="takes too long"):
        faults_of(either, [[0] * 20_000] * 400)


def test_all_values_of_one_budget_share_it() -> None:
    schema = {"items": {"type": "integer"}}
    with one_budget():
        assert faults_of(schema, [1] * 40_000) == []
        assert faults_of(schema, [1] * 40_000) == []
        with pytest.raises(InvalidValue, match="takes too long"):
            faults_of(schema, [1] * 40_000)
    assert faults_of(schema, [1] * 40_000) == []


def test_a_schema_costs_the_same_whether_it_was_checked_before_or_not() -> None:
    def number_in_budget() -> int:
        with one_budget():
            for number in range(1_000):
                try:
                    schema_of(
                        {"title": "x" * 4_000, "default": number}, of_decimal=False
                    )
                except InvalidValue:
                    return number
        raise AssertionError("schemas cost nothing")

    assert number_in_budget() == number_in_budget()
