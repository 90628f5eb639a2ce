"""What judging a caller's schema may cost."""

import time
from typing import Any

import pytest

from orchestrator.asking.item_schemas import bounded
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.answer_schema import faults_of


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(?:ab){2,}",
        r"(a)\1",
        "a*a*a*b",
        "^a*a*a*a*a*b",
        "x" * 501,
        7,
    ],
)
def test_a_pattern_whose_cost_could_grow_is_refused(pattern: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        bounded({"properties": {"a": {"pattern": pattern}}}, path="items[0].schema")
    assert refused.value.facts["path"] == "items[0].schema.properties.pattern"


@pytest.mark.parametrize("schema", ["int", "[].append(1)", True, ["integer"], 7])
def test_a_schema_is_an_object_and_never_the_name_of_a_type(schema: Any) -> None:
    with pytest.raises(InvalidValue, match="a schema is a JSON object"):
        bounded(schema, path="s")


def test_patterns_of_names_are_refused() -> None:
    with pytest.raises(InvalidValue, match="patterns of names"):
        bounded({"patternProperties": {"a": {}}}, path="s")


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: Any = {}
    for _ in range(40):
        schema = {"items": schema}
    with pytest.raises(InvalidValue, match="nested more than"):
        bounded(schema, path="s")


def test_the_schema_that_pydantic_makes_of_an_amount_is_let_through() -> None:
    pattern = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
    stored = bounded({"type": "string", "pattern": pattern}, path="s")
    assert faults_of(stored, "12.50") == []
    assert faults_of(stored, "twelve") != []


def test_no_pattern_is_tried_on_a_long_text() -> None:
    schema = bounded({"type": "string", "pattern": "^a*a*a*a*$"}, path="s")
    assert schema["maxLength"] == 100
    began = time.process_time()
    faults = faults_of(schema, "a" * 100_000 + "b")
    # Seconds are far from what matching it would take, which is longer than a day.
    assert time.process_time() - began < 60
    assert [fault.validator for fault in faults] == ["maxLength"]


def test_values_in_a_schema_are_no_schemas() -> None:
    schema = {"enum": [{"pattern": "(a+)+"}], "properties": {"pattern": {}}}
    assert bounded(schema, path="s") == schema
