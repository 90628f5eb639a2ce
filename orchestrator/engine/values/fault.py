"""Faults of a value, in one sentence for each kind of fault that pydantic knows. Pure.

People who fill in a form read it beside the field: it says what is needed there, never
how the type is written in code.
"""

import re
from collections.abc import Mapping
from typing import Any

TEXT = "This must be text."
NUMBER = "This must be a number."
WHOLE = "This must be a whole number."
LIST = "This must be a list."
OBJECT = "This must be an object with named fields."
SET = "This must be a list."
DATE = "This must be a date, as 2026-03-02."
TIME = "This must be a time of day, as 09:30."
MOMENT = "This must be a date with a time, as 2026-03-02T09:30."
SPAN = "This must be a length of time, as PT1H30M for an hour and a half."
ADDRESS = "This must be a web address, as https://example.org/."
ONE_OF = "This must be one of: {expected}."
UNFIT = "This does not fit what is asked for here."

SENTENCES: Mapping[str, str] = {
    "missing": "This is needed.",
    "extra_forbidden": "There is no such field here.",
    "invalid_key": "The names of fields must be text.",
    "none_required": "This must be left empty.",
    "missing_sentinel_error": "This must be left out.",
    "greater_than": "This must be more than {gt}.",
    "greater_than_equal": "This must be {ge} or more.",
    "less_than": "This must be less than {lt}.",
    "less_than_equal": "This must be {le} or less.",
    "multiple_of": "This must be a multiple of {multiple_of}.",
    "finite_number": "This must be a number that is neither infinite nor undefined.",
    "too_short": "This is too short: it needs at least {min_length} items.",
    "too_long": "This is too long: it may have at most {max_length} items.",
    "string_type": TEXT,
    "string_unicode": "This holds characters that cannot be read.",
    "string_too_short": "This is too short: it needs at least {min_length} characters.",
    "string_too_long": "This is too long: it may have at most {max_length} characters.",
    "string_pattern_mismatch": "This is not written in the form that is asked for here.",
    "string_not_ascii": "This may hold only unaccented letters, digits and common signs.",
    "enum": ONE_OF,
    "literal_error": ONE_OF,
    "ellipsis_error": UNFIT,
    "bool_type": "This must be yes or no.",
    "bool_parsing": "This must be yes or no.",
    "int_type": WHOLE,
    "int_parsing": WHOLE,
    "int_parsing_size": "This number is too large to be kept.",
    "int_from_float": WHOLE,
    "float_type": NUMBER,
    "float_parsing": NUMBER,
    "decimal_type": NUMBER,
    "decimal_parsing": NUMBER,
    "decimal_max_digits": "This may have at most {max_digits} digits.",
    "decimal_max_places": "This may have at most {decimal_places} digits behind the point.",
    "decimal_whole_digits": "This may have at most {whole_digits} digits before the point.",
    "fraction_type": NUMBER,
    "fraction_parsing": NUMBER,
    "complex_type": NUMBER,
    "complex_str_parsing": NUMBER,
    "date_type": DATE,
    "date_parsing": DATE,
    "date_from_datetime_parsing": DATE,
    "date_from_datetime_inexact": "This must be a date without a time of day.",
    "date_past": "This must be a date in the past.",
    "date_future": "This must be a date in the future.",
    "time_type": TIME,
    "time_parsing": TIME,
    "datetime_type": MOMENT,
    "datetime_parsing": MOMENT,
    "datetime_object_invalid": MOMENT,
    "datetime_from_date_parsing": MOMENT,
    "datetime_past": "This must be a moment in the past.",
    "datetime_future": "This must be a moment in the future.",
    "timezone_naive": "This must be without a time zone.",
    "timezone_aware": "This needs a time zone, as +01:00 or Z at its end.",
    "timezone_offset": "This must be in another time zone.",
    "time_delta_type": SPAN,
    "time_delta_parsing": SPAN,
    "uuid_type": "This must be an id, as 0190c5a8-0000-7000-8000-000000000000.",
    "uuid_parsing": "This must be an id, as 0190c5a8-0000-7000-8000-000000000000.",
    "uuid_version": "This must be an id of version {expected_version}.",
    "url_type": ADDRESS,
    "url_parsing": ADDRESS,
    "url_syntax_violation": ADDRESS,
    "url_too_long": "This address is too long: it may have at most {max_length} characters.",
    "url_scheme": "This address must begin with one of: {expected_schemes}.",
    "bytes_type": TEXT,
    "bytes_too_short": "This is too short: it needs at least {min_length} bytes.",
    "bytes_too_long": "This is too long: it may have at most {max_length} bytes.",
    "bytes_invalid_encoding": "This holds bytes that cannot be read as {encoding}.",
    "union_tag_invalid": "The field {discriminator} must be one of: {expected_tags}.",
    "union_tag_not_found": "The field {discriminator} is needed: it says what this is.",
    "json_invalid": "This is not valid JSON.",
    "json_type": "This must be text that holds JSON.",
    **dict.fromkeys(
        ["list_type", "tuple_type", "deque_type", "iterable_type", "iteration_error"],
        LIST,
    ),
    **dict.fromkeys(["set_type", "frozen_set_type", "set_item_not_hashable"], SET),
    **dict.fromkeys(
        [
            "dict_type",
            "frozen_dict_type",
            "ordered_dict_type",
            "counter_type",
            "mapping_type",
            "model_type",
        ],
        OBJECT,
    ),
    **dict.fromkeys(
        [
            "model_attributes_type",
            "dataclass_type",
            "dataclass_exact_type",
            "named_tuple_type",
        ],
        OBJECT,
    ),
    **dict.fromkeys(
        ["recursion_loop", "recursion_depth_exceeded"], "This is nested too deeply."
    ),
    **dict.fromkeys(["frozen_field", "frozen_instance"], "This cannot be changed."),
    **dict.fromkeys(
        ["missing_argument", "missing_keyword_only_argument"], "This is needed."
    ),
    "missing_positional_only_argument": "This is needed.",
    **dict.fromkeys(
        ["unexpected_keyword_argument", "unexpected_positional_argument"],
        "There is no such field here.",
    ),
    **dict.fromkeys(
        ["no_such_attribute", "needs_python_object", "get_attribute_error"], UNFIT
    ),
    **dict.fromkeys(
        [
            "default_factory_not_called",
            "is_instance_of",
            "is_subclass_of",
            "callable_type",
        ],
        UNFIT,
    ),
    **dict.fromkeys(["arguments_type", "multiple_argument_values"], UNFIT),
}
"""Kind of fault -> its sentence; names in braces are facts that pydantic gives with it.
"""
OWN = frozenset({"value_error", "assertion_error"})
"""Kinds whose sentence comes from the type's author, who raised it."""

# The sentences are written for several, and read wrong for one.
_ONE = re.compile(r"\b1 (item|character|digit|byte)s\b")


def sentence_of(fault: Mapping[str, Any]) -> str:
    """Return one entry of `ValidationError.errors()` as a sentence. An author's own type
    keeps its own words.
    """
    kind = str(fault["type"])
    facts = fault.get("ctx") or {}
    # Kinds of authors, whose words fit better than any of these.
    if kind not in SENTENCES:
        return _as_sentence(str(facts.get("error") or fault["msg"]))
    return _ONE.sub(r"1 \1", SENTENCES[kind].format_map(facts))


def _as_sentence(words: str) -> str:
    text = words.strip() or UNFIT
    sentence = text[:1].upper() + text[1:]
    if not text.endswith((".", "!", "?")):
        sentence += "."
    return sentence
