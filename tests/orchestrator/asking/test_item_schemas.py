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
        "a*a*b",
        "^a*a*a*b",
        "^a?a?a?aaa$",
        "^(a|aa)(a|aa)(a|aa)$",
        "^(?x:(a+) +)$",
        "(?i)a",
        "^(a+)(?#c)+$",
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
    schema = bounded({"type": "string", "pattern": "^a*a*$"}, path="s")
    assert schema["maxLength"] == 100
    began = time.process_time()
    faults = faults_of(schema, "a" * 100_000 + "b")
    # Seconds are far from what matching it would take, which is longer than a day.
    assert time.process_time() - began < 60
    assert [fault.validator for fault in faults] == ["maxLength"]


def test_values_in_a_schema_are_no_schemas() -> None:
    schema = {"enum": [{"pattern": "(a+)+"}], "properties": {"pattern": {}}}
    assert bounded(schema, path="s") == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/default", "default": {"pattern": "(a+)+$"}},
        {"$ref": "#/enum/0", "enum": [{"pattern": "(a+)+$"}]},
        {"$ref": "#/properties", "properties": {"pattern": "(a+)+$"}},
        {"$ref": "#/$defs/a/default", "$defs": {"a": {"default": {}}}},
        {"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}},
        {"$defs": {"a": {"$id": "urn:a"}}},
        {"items": {"$schema": "http://json-schema.org/draft-07/schema#"}},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"unevaluatedProperties": False},
        {"format": "regex"},
    ],
)
def test_what_is_not_looked_at_judges_nothing(schema: Any) -> None:
    with pytest.raises(InvalidValue):
        bounded(schema, path="s")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"properties": {"next": {"$ref": "#"}}},
        {"pattern": "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$", "maxLength": 34},
        {"pattern": r"^[+-]?\d+$", "maxLength": 9},
    ],
)
def test_what_schemas_usually_say_is_let_through(schema: Any) -> None:
    assert bounded(schema, path="s") == schema


def test_a_schema_may_name_its_dialect() -> None:
    dialect = "https://json-schema.org/draft/2020-12/schema"
    assert bounded({"$schema": dialect, "type": "null"}, path="s") == {"type": "null"}
