"""The part of the client that is made of the API's schema: its types, and a function
for each operation.

`python -m tests.house.client_source` writes both modules anew.
"""

import json
import keyword
import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]
CLIENT = Path(__file__).resolve().parents[2] / "orchestrator" / "client"
PREFIX = "/api/v1/"
JSON = "application/json"
COLUMNS = 88
WRITTEN_BY = (
    "Written by `python -m tests.house.client_source` from the schema of the API; what is\n"
    "changed here by hand is lost."
)
HEAD_OF_TYPES = f'''"""The types of what the API takes and answers.

{WRITTEN_BY}
"""

from typing import Any, Generic, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

R = TypeVar("R")


class Page(TypedDict, Generic[R]):
    """A page of a list. `next` is null on the last."""

    next: str | None
    previous: str | None
    results: list[R]
'''
HEAD_OF_CALLS = f'''"""The operations of the API, each as a call that a client sends.

    client.send(calls.runs_retrieve("CLM-1"))

{WRITTEN_BY}
"""

from typing import Any, Literal

from orchestrator.client import types
from orchestrator.client.exchange import Call, part'''
SIMPLE = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict[str, Any]",
}


def schema_of_the_api() -> Json:
    """Return the schema that `GET /api/v1/schema/` answers."""
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.settings import patched_settings

    from orchestrator.api.schema import Schema

    with patched_settings(Schema.custom_settings):
        generator = SchemaGenerator(urlconf=Schema.urlconf)
        schema: Json = generator.get_schema(public=True)
    return schema


def modules(schema: Json) -> dict[str, str]:
    """Return the text of each module that is made of this schema, by its file's name."""
    return {
        "types.py": "\n".join([HEAD_OF_TYPES, *_types(schema), ""]),
        "calls.py": "\n".join([HEAD_OF_CALLS, *_calls(schema), ""]),
    }


def _types(schema: Json) -> Iterator[str]:
    components = schema["components"]["schemas"]
    for name in _alias_first(components):
        declared = components[name]
        if _is_page(declared):
            continue
        if "properties" not in declared:
            yield f"{name}: TypeAlias = {_type(declared)}"
            continue
        yield f"\n\nclass {name}(TypedDict):"
        yield from _docstring(declared.get("description", name))
        required = declared.get("required", ())
        for member, its in declared["properties"].items():
            hint = _type(its)
            if member not in required:
                hint = f"NotRequired[{hint}]"
            yield f"    {member}: {hint}"


def _alias_first(components: Json) -> list[str]:
    """Return the names of all types, those without members first."""
    return sorted(components, key=lambda name: "properties" in components[name])


def _is_page(declared: Json) -> bool:
    return set(declared.get("properties", ())) == {"next", "previous", "results"}


def _docstring(text: str, indent: str = "    ") -> Iterator[str]:
    lines = textwrap.wrap(" ".join(text.split()), COLUMNS - len(indent) - 6)
    yield f'{indent}"""' + f"\n{indent}".join(lines) + '"""'


def _type(declared: Json, where: str = "") -> str:
    """Return the hint for what is declared; names of types are looked up in `where`."""
    if "$ref" in declared:
        return f'"{where}{declared["$ref"].rpartition("/")[2]}"'
    for several in ("oneOf", "anyOf"):
        if several in declared:
            return _union(_type(one, where) for one in declared[several])
    if "allOf" in declared:
        [only] = declared["allOf"]
        return _type(only, where)
    if "enum" in declared:
        return f"Literal[{', '.join(map(json.dumps, declared['enum']))}]"
    kinds = declared.get("type")
    if kinds is None:
        return "Any"
    if isinstance(kinds, str):
        kinds = [kinds]
    return _union(_of_kind(kind, declared, where) for kind in kinds)


def _of_kind(kind: str, declared: Json, where: str) -> str:
    if kind == "array":
        return f"list[{_type(declared['items'], where)}]"
    inner = declared.get("additionalProperties")
    if kind == "object" and isinstance(inner, dict):
        return f"dict[str, {_type(inner, where)}]"
    return SIMPLE[kind]


def _union(hints: Iterator[str]) -> str:
    names = list(dict.fromkeys(hints))
    if len(names) == 1:
        return names[0]
    # A text cannot be joined by `|`, so the whole is one text.
    whole = " | ".join(name.replace('"', "") for name in names)
    if any('"' in name for name in names):
        return f'"{whole}"'
    return whole


def _calls(schema: Json) -> Iterator[str]:
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if _is_json(operation):
                yield from _call(
                    method.upper(), path.removeprefix(PREFIX), operation, schema
                )


def _is_json(operation: Json) -> bool:
    """Return whether it takes and answers JSON or nothing; files and streams are read
    by hand.
    """
    contents = [*operation["responses"].values(), operation.get("requestBody", {})]
    kinds = [content for each in contents for content in each.get("content", ())]
    return all(kind.endswith("json") and "ndjson" not in kind for kind in kinds)


def _call(method: str, path: str, operation: Json, schema: Json) -> Iterator[str]:
    parameters = operation.get("parameters", ())
    queries = [each for each in parameters if each["in"] == "query"]
    arguments = [
        f"{each['name']}: {_type(each['schema'])}"
        for each in parameters
        if each["in"] == "path"
    ]
    body = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if body:
        arguments.append(f"body: {_type(body['schema'], 'types.')}")
    if queries:
        arguments += ["*", *map(_query_argument, queries)]
    answer = _answer(operation, schema)
    yield f"\n\ndef {operation['operationId']}("
    for argument in arguments:
        yield f"    {argument},"
    yield f') -> "Call[{answer}]":'
    yield from _docstring(f"{method} {path}")
    yield "    return Call("
    yield f'        "{method}",'
    yield f"        {_filled(path)},"
    if queries:
        yield "        {"
        for each in queries:
            yield f'            "{each["name"]}": {_python_name(each["name"])},'
        yield "        },"
    if body:
        yield "        body=body,"
    yield "    )"


def _query_argument(parameter: Json) -> str:
    name = _python_name(parameter["name"])
    hint = _type(parameter["schema"])
    if parameter.get("required"):
        return f"{name}: {hint}"
    return f"{name}: {hint} | None = None"


def _python_name(name: str) -> str:
    if keyword.iskeyword(name):
        return f"{name}_"
    return name


def _filled(path: str) -> str:
    """Return the expression of a path, in which each name is one part."""
    if "{" not in path:
        return f'"{path}"'
    return 'f"' + path.replace("{", "{part(").replace("}", ")}") + '"'


def _answer(operation: Json, schema: Json) -> str:
    hints = []
    for status, response in operation["responses"].items():
        if not status.startswith("2"):
            continue
        content = response.get("content", {}).get(JSON)
        hints.append(_content(content, schema) if content else "None")
    return _union(iter(hints)).replace('"', "")


def _content(content: Json, schema: Json) -> str:
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    declared = schema["components"]["schemas"].get(name, {})
    if not _is_page(declared):
        return _type(content["schema"], "types.")
    row = _type(declared["properties"]["results"]["items"], "types.")
    return f"types.Page[{row}]"


def write() -> None:
    """Write the modules anew."""
    for name, text in modules(schema_of_the_api()).items():
        (CLIENT / name).write_text(text)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    write()
