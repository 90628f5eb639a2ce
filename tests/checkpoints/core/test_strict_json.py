"""JSON from outside is read one way: what two readers could take for two things is
refused, with its place.
"""

import pytest

from checkpoints.core.strict_json import NotStrict, parse_strict, refuse_repeated


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a": 1, "a": 2}', "a"),
        ('{"a": 1, "a": 1}', "a"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "a.b"),
        ('[{"x": 1}, {"x": {"y": [{"z": 1, "z": 2}]}}]', "[1].x.y[0].z"),
        ('{"a": 1, "\\u0061": 2}', "a"),
    ],
)
def test_a_key_that_is_given_twice_is_refused_with_its_path(
    text: str, path: str
) -> None:
    with pytest.raises(NotStrict, match="given more than once") as refused:
        parse_strict(text)
    assert refused.value.path == path


@pytest.mark.parametrize(
    "text",
    [
        b"",
        "",
        "{",
        "NaN",
        '{"a": -Infinity}',
        b"\xff",
        b"\xed\xa0\x80",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 5000,
        '"\\ud800"',
        '{"\\udfff": 1}',
    ],
)
def test_what_is_no_json_is_refused_without_a_path(text: str | bytes) -> None:
    with pytest.raises(NotStrict) as refused:
        parse_strict(text)
    assert refused.value.path == ""


def test_everything_else_is_read_as_it_stands() -> None:
    assert parse_strict(
        '{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}], "n": 12345678901234567890, "x": 1.5, "z": null}'
    ) == {
        "a": {"a": 1},
        "b": [{"a": 1}, {"a": 2}],
        "n": 12345678901234567890,
        "x": 1.5,
        "z": None,
    }
    assert parse_strict(b'"\xc3\xa9"') == "é"
    assert parse_strict("[" * 400 + "]" * 400)


def test_the_first_repeated_name_is_reported() -> None:
    refuse_repeated(["a", "b", "c"])
    with pytest.raises(NotStrict, match="b is given more than once"):
        refuse_repeated(["a", "b", "c", "b", "c"])
