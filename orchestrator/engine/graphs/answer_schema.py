"""The JSON Schema that an answer must fit: as a node gives it, as it is stored, and
what of an answer does not fit it. Pure.

An amount is text in JSON, so bounds of numbers hold for text that is a number too.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators
from jsonschema.exceptions import SchemaError
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json

LARGEST_SCHEMA = 65_536
"""The most bytes of the JSON Schema of an answer."""
MOST_REFERENCES = 1_000
"""The most references of a schema, each written out with those in what it leads to."""
MOST_REFERRED = 4
"""The most that all that a schema refers to has in bytes, in largest schemas."""
MOST_CHECKS = 100_000
"""The most keywords of a schema that are held against one answer, or against all values
of one budget: seconds, however often it refers to itself. What takes longer counts more.
"""
_OF_PATTERN = 10
"""As how many checks a pattern counts."""
_BYTES_A_CHECK = 4
"""How many bytes of a new schema count as one check."""
MOST_FAULTS = 20
"""The most parts of an answer of which it is said what is wrong."""
FORMATS = ("date", "email", "ipv4", "ipv6", "regex", "uuid")
"""The formats that are checked: those that need no further library, so that an answer
fits everywhere or nowhere.
"""
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are not schemas."""
_DEFINITIONS = frozenset({"$defs", "definitions"})
"""Keywords whose schemas hold only where they are referred to."""
_NAMED = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose values are schemas by name."""
_BOUNDS = frozenset(
    {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}
)


def schema_of(schema: Any, *, of_decimal: bool) -> Json:
    """Return the JSON Schema of an answer as it is stored. `schema` is one, or a type
    for which pydantic makes one; `of_decimal` says that the answer is an amount. Raises
    `InvalidValue`, or `PayloadTooLarge`.
    """
    text = _text_of(schema)
    if len(text) > LARGEST_SCHEMA:
        raise PayloadTooLarge(
            f"the schema of an answer has {len(text):,} bytes; "
            f"at most {LARGEST_SCHEMA:,}"
        )
    with one_budget():
        _BUDGET.get().charge_schema(text)
        return canonical.loads(_checked(text, of_decimal))


@lru_cache(maxsize=64)
def _checked(text: bytes, of_decimal: bool) -> bytes:
    """Return a schema as it is stored. Many writes of a task bring the same one."""
    # Whether it is in the cache must not decide what else fits into a budget.
    token = _BUDGET.set(_Budget())
    try:
        return _judged(text, of_decimal)
    finally:
        _BUDGET.reset(token)


def _judged(text: bytes, of_decimal: bool) -> bytes:
    plain = canonical.loads(text)
    _require_schema(plain)
    _require_own_references(plain)
    if of_decimal:
        plain = _of_amount(plain)
    # A schema that leads back to itself on the spot judges no value at all.
    faults_of(plain, None)
    return canonical.encode(plain)


def is_of_amount(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema that pydantic made is that of a Decimal: a number, or a
    text of digits, perhaps null.
    """
    union = schema.get("anyOf")
    if not isinstance(union, list):
        return False
    types = {member.get("type") for member in union}
    return types - {"null"} == {"number", "string"}


def faults_of(schema: Json, answer: Json) -> list[ValidationError]:
    """Return what of an answer does not fit a schema, at most `MOST_FAULTS`. Raises
    `InvalidValue` for a schema that cannot be applied to it, or not in `MOST_CHECKS`.
    """
    validator = _CountedValidator(schema, format_checker=FormatChecker(FORMATS))
    try:
        with one_budget():
            return list(islice(validator.iter_errors(answer), MOST_FAULTS))
    except RecursionError as error:
        raise _refusal("leads back to itself without an end") from error
    except Unresolvable as error:
        raise _refusal(f"refers to what it does not have: {error}") from error


@contextmanager
def one_budget() -> Iterator[None]:
    """Open a block whose checks share `MOST_CHECKS`; inside another block they share
    the outer one's.
    """
    if _BUDGET.get(None) is not None:
        yield
        return
    token = _BUDGET.set(_Budget())
    try:
        yield
    finally:
        _BUDGET.reset(token)


class _Budget:
    """The checks that are left, and the schemas that were charged for."""

    def __init__(self) -> None:
        self.left = MOST_CHECKS
        self.schemas: set[bytes] = set()

    def charge(self, checks: int) -> None:
        """Raise `InvalidValue` beyond `MOST_CHECKS`."""
        self.left -= checks
        if self.left < 0:
            raise _refusal("takes too long to hold against this value")

    def charge_schema(self, text: bytes) -> None:
        """Charge for a schema where it comes first."""
        if text not in self.schemas:
            self.schemas.add(text)
            self.charge(len(text) // _BYTES_A_CHECK)


_BUDGET: ContextVar[_Budget] = ContextVar("budget")


def _refusal(reason: str) -> InvalidValue:
    return InvalidValue(f"the schema of an answer {reason}", path="schema")


# The values that a node returns.


def _text_of(schema: Any) -> bytes:
    """Return the JSON Schema that a node gives, as canonical JSON."""
    if isinstance(schema, type):
        return _text_of_type(schema)
    return canonical.dumps(canonical.normalised(_as_json_schema(schema)))


@lru_cache(maxsize=64)
def _text_of_type(schema: type) -> bytes:
    # A class has one schema, which pydantic takes long to make.
    return canonical.dumps(canonical.normalised(_as_json_schema(schema)))


def _as_json_schema(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return schema
    try:
        # Values have the names of fields, whatever a form outside calls them.
        of_type = TypeAdapter(schema).json_schema(by_alias=False)
    except (PydanticUserError, TypeError) as error:
        raise InvalidValue(
            f"schema={schema!r} is neither a JSON Schema nor a type that has one",
            path="schema",
        ) from error
    return _with_bounds_of_amounts(of_type)


def _with_bounds_of_amounts(schema: Any) -> Any:
    """Return a schema that pydantic made, in which the bounds of a Decimal hold for its
    text as well: they stand beside the union of number and text, not in the number.
    """
    if isinstance(schema, list):
        return [_with_bounds_of_amounts(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {}
    for keyword, value in schema.items():
        inner[keyword] = _with_bounds_of_amounts(value)
    if not is_of_amount(schema):
        return inner
    for member in schema["anyOf"]:
        if member["type"] == "number":
            bounds = {word: member[word] for word in _BOUNDS & member.keys()}
            inner = {**bounds, **inner}
    return inner


def _of_amount(schema: Json) -> Json:
    """Return a schema in which a number may be text, as amounts are in JSON."""
    if not isinstance(schema, dict) or "anyOf" in schema:
        return schema
    types = schema.get("type")
    names = types if isinstance(types, list) else [types]
    if not {"integer", "number"} & set(names) or "string" in names:
        return schema
    plain = {word: value for word, value in schema.items() if word != "type"}
    if "number" not in names:
        plain.setdefault("multipleOf", 1)
    union: list[Json] = [{"type": "number"}, {"type": "string"}]
    if "null" in names:
        union.append({"type": "null"})
    return {**plain, "anyOf": union}


def _require_schema(schema: Json) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise InvalidValue(
            f"the schema of an answer is no JSON Schema: {error.message}", path="schema"
        ) from error
    except RecursionError as error:
        raise _refusal("is nested too deeply") from error


def _require_own_references(schema: Json) -> None:
    """Raise `InvalidValue` if a reference leads out of the schema, or to no schema."""
    resource = DRAFT202012.create_resource(schema)
    resolver = Registry().resolver_with_root(resource)
    size = 0
    for reference in dict.fromkeys(_references(schema)):
        # Nothing outside is read to say what an answer may be.
        if not reference.startswith("#"):
            raise _refusal("refers to another document; write it out")
        try:
            target = resolver.lookup(reference).contents
        except (Unresolvable, TypeError, ValueError) as error:
            raise _refusal(f"refers to {reference}, which it does not have") from error
        if not isinstance(target, dict | bool):
            raise _refusal(f"refers to {reference}, which is no schema")
        # Each is checked by itself, though it may lie within another.
        size += len(canonical.encode(target))
        if size > MOST_REFERRED * LARGEST_SCHEMA:
            raise _refusal("refers to too much of itself")
        _require_schema(target)
    _require_few_references(schema, resolver)


def _require_few_references(schema: Json, resolver: Any) -> None:
    """Raise `InvalidValue` if a schema has too many references, written out: two that
    lead to two each are six. One that leads back is followed no further.
    """
    written_out: dict[str, int] = {}

    def number(part: Json) -> int:
        total = 0
        for reference in _references(part, applied=True):
            if reference not in written_out:
                written_out[reference] = 0
                target = resolver.lookup(reference).contents
                written_out[reference] = 1 + number(target)
            total += max(1, written_out[reference])
        return total

    try:
        total = number(schema)
    except RecursionError as error:
        raise _refusal("is nested too deeply") from error
    if total > MOST_REFERENCES:
        raise _refusal(f"has more than {MOST_REFERENCES:,} references, written out")


def _references(schema: Json, *, applied: bool = False) -> Iterator[str]:
    """Yield the references in a schema; with `applied`, without those of its
    definitions. A property of such a name is none.
    """
    if isinstance(schema, list):
        for member in schema:
            yield from _references(member, applied=applied)
    if not isinstance(schema, dict):
        return
    # What stands beside these is read as a schema.
    passed_over = _DATA | _DEFINITIONS if applied else _DATA
    for keyword, value in schema.items():
        if keyword in ("$ref", "$dynamicRef"):
            yield str(value)
        elif keyword not in passed_over:
            is_named = keyword in _NAMED and isinstance(value, dict)
            inner = list(value.values()) if is_named else value
            yield from _references(inner, applied=applied)


# The values that people answer.


def _with_amounts(keyword: str, keeps: Callable[[Decimal, Decimal], bool]) -> Any:
    """Return the check of a bound that holds for text that is a number too."""
    of_numbers = Draft202012Validator.VALIDATORS[keyword]

    def check(
        validator: Any, bound: Any, value: Any, schema: Any
    ) -> Iterator[ValidationError]:
        amount = _amount(value)
        if amount is None:
            yield from of_numbers(validator, bound, value, schema) or ()
        elif not keeps(amount, Decimal(str(bound))):
            yield ValidationError(f"{value!r} does not keep {keyword} {bound}")

    return check


def _pattern(
    validator: Any, pattern: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    """Check a pattern, but for a text that is too long for its schema anyway: that has
    its own fault, and matching it could take long.
    """
    longest = schema.get("maxLength")
    is_short = longest is None or not isinstance(value, str) or len(value) <= longest
    if is_short:
        yield from _OF_PATTERNS(validator, pattern, value, schema) or ()


def _unique(
    validator: Any, is_unique: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    """Check that no member of a list is there twice, without comparing each with each."""
    if not is_unique or not isinstance(value, list):
        return
    members = {canonical.encode(_with_whole_numbers(member)) for member in value}
    if len(members) < len(value):
        yield ValidationError("it has a member twice")


def _with_whole_numbers(value: Json) -> Json:
    """Return a value in which 1.0 is 1, which is the same number in JSON Schema."""
    if isinstance(value, list):
        return [_with_whole_numbers(member) for member in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(part) for name, part in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value) if abs(value) <= canonical.LARGEST else value
    return value


_OF_PATTERNS = Draft202012Validator.VALIDATORS["pattern"]


def _amount(value: Any) -> Decimal | None:
    """Return the number that a text is; None for everything else."""
    if not isinstance(value, str):
        return None
    try:
        amount = Decimal(value)
    except InvalidOperation:
        return None
    return None if amount.is_nan() else amount


def _is_multiple(amount: Decimal, of: Decimal) -> bool:
    try:
        return amount % of == 0
    except InvalidOperation:
        # It is too large to be divided exactly.
        return False


_AnswerValidator = validators.extend(
    Draft202012Validator,
    {
        "minimum": _with_amounts("minimum", lambda amount, bound: amount >= bound),
        "maximum": _with_amounts("maximum", lambda amount, bound: amount <= bound),
        "exclusiveMinimum": _with_amounts(
            "exclusiveMinimum", lambda amount, bound: amount > bound
        ),
        "exclusiveMaximum": _with_amounts(
            "exclusiveMaximum", lambda amount, bound: amount < bound
        ),
        "multipleOf": _with_amounts("multipleOf", _is_multiple),
        "pattern": _pattern,
        "uniqueItems": _unique,
    },
)


def _counted(keyword: str, check: Any) -> Any:
    """Return the check of a keyword that counts. Raises `InvalidValue` beyond
    `MOST_CHECKS`.
    """

    def counted(
        validator: Any, expected: Any, value: Any, schema: Any
    ) -> Iterator[ValidationError]:
        budget = _BUDGET.get()
        budget.charge(_checks_of(keyword, expected, value))
        for fault in check(validator, expected, value, schema) or ():
            # Its message quotes the value, however large.
            budget.charge(len(fault.message) // 1000)
            yield fault

    return counted


def _checks_of(keyword: str, expected: Any, value: Any) -> int:
    """Return as how many checks one counts, by what is gone through in it."""
    checks = 1 + _breadth(expected) + _breadth(value)
    if keyword == "pattern":
        checks += _OF_PATTERN
    elif keyword in ("const", "enum"):
        checks += len(canonical.encode(expected)) // 100
    elif keyword == "uniqueItems" and isinstance(value, list):
        checks += len(canonical.encode(value)) // 100
    return checks


def _breadth(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // 1000
    return len(value) // 100 if isinstance(value, list | dict) else 0


_CountedValidator = validators.extend(
    _AnswerValidator,
    {
        word: _counted(word, check)
        for word, check in _AnswerValidator.VALIDATORS.items()
    },
)
