"""The shape of the house: what keeps its folders readable. Each number here only ever
goes down.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.house.readability import WRITTEN_BY_A_PROGRAM

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("checkpoints", "approvals", "orchestrator")
WIDEST_FOLDER = 27
"""Modules that lie side by side in one folder: that of the commands, which Django looks
for in one folder only.
"""
WIDEST_STOREY = 5
SQL_DOORS = (
    "checkpoints/db/",  # everything that is said to the database past the ORM
    "checkpoints/memory/search.py",  # full text, FTS5: DDL of one database each
    "checkpoints/queue/notify.py",  # NOTIFY
    "approvals/append_only.py",
    "approvals/list_columns.py",  # triggers
    "orchestrator/worker/",  # LISTEN
)
ALLOWED_FORMS = {
    *(
        "sealing",
        "signing",
        "routing",
        "logging",
        "parsing",
        "reading",
        "drawing",
        "keyring",
        "frozen",
        "sealed",
    ),
    *("create_token", "restored"),
}
"""Nouns that end like verbs, and the field's own words."""
MOST_SHARED_NAMES = 14


def modules() -> Iterator[Path]:
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            if (
                path not in WRITTEN_BY_A_PROGRAM
                and "migrations" not in path.parts
                and "demo" not in path.parts
                and path.stat().st_size
            ):
                yield path.relative_to(ROOT)


def test_no_folder_is_a_drawer() -> None:
    count: dict[str, int] = defaultdict(int)
    for path in modules():
        count[str(path.parent)] += 1
    assert {name: n for name, n in count.items() if n > WIDEST_FOLDER} == {}


def test_no_storey_says_everybody_may_call_everybody() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]["contracts"]
    storeys = [s for c in contracts if c["type"] == "layers" for s in c["layers"]]
    assert [s for s in storeys if s.count(":") >= WIDEST_STOREY] == []


def test_a_module_is_called_by_a_noun() -> None:
    odd = [
        str(p)
        for p in modules()
        if re.search(r"(ing|ed|en)$", p.stem) and p.stem not in ALLOWED_FORMS
    ]
    assert odd == []


def test_only_the_sql_door_takes_a_cursor() -> None:
    takers = [
        str(p)
        for p in modules()
        if re.search(r"\.cursor\(\)|\.__new__\(", (ROOT / p).read_text())
    ]
    assert [
        p
        for p in takers
        if not p.startswith(SQL_DOORS) and not p.startswith("orchestrator/engine")
    ] == []


def test_one_word_means_one_thing() -> None:
    """A public function's name says what it does wherever it is met: verbs that stand
    in many modules say nothing.
    """
    places: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        if path.parts[1] in ("management", "admin.py"):
            continue
        for node in ast.parse((ROOT / path).read_text()).body:
            if (
                isinstance(node, ast.FunctionDef)
                and not node.name.startswith("_")
                and "_" not in node.name
            ):
                places[node.name].add(str(path))
    shared = {name: sorted(where) for name, where in places.items() if len(where) >= 3}
    assert len(shared) <= MOST_SHARED_NAMES, shared


def test_tests_mirror_the_house() -> None:
    stems = {p.stem.removeprefix("test_") for p in (ROOT / "tests").rglob("test_*.py")}
    large = [
        p
        for p in modules()
        if ROOT / p not in WRITTEN_BY_A_PROGRAM
        and len((ROOT / p).read_text().splitlines()) >= 280
    ]
    missing = [str(p) for p in large if p.stem not in stems]
    assert missing == []


def test_no_test_module_is_imported_by_another() -> None:
    imports = re.compile(r"^from tests\.[\w.]*test_", re.MULTILINE)
    bad = [
        str(p.relative_to(ROOT))
        for p in (ROOT / "tests").rglob("*.py")
        if imports.search(p.read_text())
    ]
    assert bad == []


def test_a_docstring_is_wrapped_whole() -> None:
    """A tool that re-wrapped the docstrings left words alone on their lines."""
    orphans = []
    for path in modules():
        lines = (ROOT / path).read_text().splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and (node.end_lineno or 0) > node.lineno
            ):
                for n in range(node.lineno, (node.end_lineno or 0) - 1):
                    before, now, after = (
                        lines[k].strip() if 0 <= k < len(lines) else ""
                        for k in (n - 1, n, n + 1)
                    )
                    if (
                        re.fullmatch(r"[a-zA-Z]+", now)
                        and len(before) > 80
                        and after
                        and not after.startswith('"""')
                    ):
                        orphans.append(f"{path}:{n + 1}")
    assert orphans == []
