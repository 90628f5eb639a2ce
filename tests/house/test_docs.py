"""The documentation names nothing that does not exist, leaves no setting or option out,
and its code runs.
"""

import inspect
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import get_commands, load_command_class

from checkpoints.models.checkpoint import Source
from orchestrator import engine
from orchestrator.engine import Context, Custom, Gate, Graph, Show, Task
from orchestrator.engine.graphs.definition import Definition
from orchestrator.engine.graphs.node import Node
from orchestrator.roles import ROLES
from tests.house import settings_table
from tests.house.commands import ROOT

DOCS = sorted((ROOT / "docs").glob("**/*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS]
GRAPHS = (ROOT / "docs" / "graphs.md").read_text()
MOST_WORDS = 30
MOST_LONG_SENTENCES = 52
"""Most of them are cells of tables that list codes or figures."""

RUN_ELSEWHERE = {
    "README.md": "tests/house/test_readme.py",
    "tutorial.md": "tests/demo/test_tutorial.py",
    "use-in-your-project.md": "tests/house/test_own_project.py",
    "deployment.md": "tests/house/test_deployment.py",
    "doors.md": "tests/orchestrator/api/test_messages_at_doors.py",
    "client.md": "tests/orchestrator/client/test_documented.py",
    "bridges.md": "tests/orchestrator/bridges/test_examples.py",
    "job-runners.md": "tests/orchestrator/bridges/test_job_runners.py",
    "mcp.md": "tests/orchestrator/bridges/test_job_runners.py",
    "langgraph.md": "tests/orchestrator/bridges/test_langgraph.py",
}


def _blocks() -> list[Any]:
    return [
        pytest.param(block, id=f"{page.stem}-{n}")
        for page in PAGES
        if page.name not in RUN_ELSEWHERE
        for n, block in enumerate(
            re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), start=1
        )
    ]


@pytest.mark.parametrize("block", _blocks())
def test_each_block_of_python_runs_by_itself(block: str) -> None:
    exec(compile(block, "docs", "exec"), {"__name__": "docs"})


def test_every_page_that_the_documentation_names_exists() -> None:
    missing = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def test_every_heading_that_a_link_names_exists() -> None:
    missing = [
        f"{page.name}: {target}#{anchor}"
        for page in PAGES
        for target, anchor in re.findall(
            r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()
        )
        if anchor not in _anchors(page.parent / target if target else page)
    ]
    assert missing == []


def test_paragraphs_and_blocks_in_a_list_are_indented_as_the_site_needs() -> None:
    item = re.compile(r"^(?:\d+\.|-) .*(?:\n {2,}.*|\n(?=\n {2,}))*\n*", re.MULTILINE)
    broken = [
        f"{page.name}: {text.splitlines()[0]}"
        for page in PAGES
        for text in item.findall(_without_blocks(page.read_text()))
        if re.search(r"\n\n {1,3}\S|^ {1,3}```", text, re.MULTILINE)
        or (re.search(r"\n\n.|^ +```", text, re.MULTILINE) and text[-2:] != "\n\n")
    ]
    assert broken == []


def _without_blocks(text: str) -> str:
    """Return a page without the content of blocks that begin at the margin."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def test_every_page_is_listed_in_the_index() -> None:
    missing = []
    for page in (ROOT / "docs").glob("**/*.md"):
        # A folder of pages with an index of its own is listed by that.
        index = page.parent / "index.md"
        if not index.exists() or page == index:
            index = ROOT / "docs" / "index.md"
        if page != index and f"({_path(page, index)})" not in index.read_text():
            missing.append(page.name)
    assert missing == []


def _sentences(text: str) -> list[str]:
    """Return the sentences of a page; cells of tables and items of lists end one."""
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "x", _without_blocks(text))
    parts = re.split(r"\n\s*\n|\||\n\s*(?:[-*]|\d+\.|#+) ", text)
    return [
        sentence
        for part in parts
        for sentence in re.split(r"(?<=[.!?])[\"”)*]*\s+(?=\W*[A-Zx])", part)
    ]


def test_sentences_are_short() -> None:
    """The changelog is left out: its older entries stay as they were published."""
    long_sentences = [
        f"{page.name}: {' '.join(sentence.split())}"
        for page in (ROOT / "README.md", *DOCS)
        for sentence in _sentences(page.read_text())
        if len(sentence.split()) >= MOST_WORDS
    ]
    assert len(long_sentences) <= MOST_LONG_SENTENCES, "\n".join(long_sentences)


def _path(page: Path, index: Path) -> str:
    """Return the address of a page in a link of the index."""
    return str(page.relative_to(index.parent))


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    pages = [_path(page, ROOT / "docs" / "index.md") for page in DOCS]
    assert [page for page in pages if f"{page}\n" not in menu] == []


def _commands() -> list[Any]:
    """Return each command of this project that stands on a line of a page, as words."""
    commands = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(
            r"^ *(?:\$ )?python manage\.py (\w.*)", text, re.MULTILINE
        ):
            words = shlex.split(line, comments=True)
            commands.append(pytest.param(words, id=f"{page.stem}-{words[0]}"))
    return commands


@pytest.mark.parametrize("words", _commands())
def test_every_command_that_a_page_shows_has_these_options(words: list[str]) -> None:
    name, *options = words
    if get_commands().get(name, "").startswith("django."):
        return
    parser = load_command_class(get_commands()[name], name).create_parser(
        "manage.py", name
    )
    parser.parse_args([option for option in options if option != "..."])


def test_every_test_that_the_documentation_names_exists() -> None:
    named = {
        name_parts
        for page in PAGES
        for name_parts in re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?", page.read_text())
    }
    assert named
    missing = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if not (ROOT / path).exists()
        or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert missing == []


def test_every_setting_has_the_line_of_its_declaration() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text().splitlines()
    assert [line for line in settings_table.lines() if line not in page] == []


def test_the_tutorial_names_each_group_that_is_made() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE
    )
    assert set(rows) == set(ROLES)


def test_every_source_of_a_checkpoint_is_told() -> None:
    (row,) = re.findall(
        r"^\| `source` \|.*$",
        (ROOT / "docs" / "checkpoints.md").read_text(),
        re.MULTILINE,
    )
    assert set(re.findall(r"`(\w+)`", row)) - {"source"} == set(Source.values)


def test_no_page_names_a_place_on_somebodys_machine() -> None:
    places = [
        f"{page.name}: {place}"
        for page in PAGES
        for place in re.findall(
            r"(?<![\w.-])/(?:work|root|home|tmp|Users|mnt)/[\w./-]*", page.read_text()
        )
    ]
    assert places == []


def _rows(heading: str) -> dict[str, str]:
    """Return the rows of the table in docs/graphs.md with this heading, by each name in
    their first column.
    """
    (table,) = re.findall(
        rf"^\| {re.escape(heading)}.*(?:\n\|.*)*", GRAPHS, re.MULTILINE
    )
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    return {
        name: row for row in rows for name in re.findall(r"`(\w+)", row.split("|")[1])
    }


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("`Graph(...)`", {field.name for field in fields(Definition) if field.init}),
        ("`graph.node(...)`", {field.name for field in fields(Node)} - {"fn"}),
        ("`Gate(...)`", {field.name for field in fields(Gate)}),
        ("`Show(...)`", {field.name for field in fields(Show)}),
    ],
)
def test_every_option_is_in_its_table(heading: str, options: set[str]) -> None:
    assert set(_rows(heading)) == options


def test_the_options_of_the_node_decorator_are_those_of_a_node() -> None:
    taken = set(inspect.signature(Graph.node).parameters) - {"self"}
    assert set(_rows("`graph.node(...)`")) == taken


def test_no_option_of_a_gate_is_marked_as_refused() -> None:
    for heading in ("`Gate(...)`", "`Show(...)`"):
        for name, row in _rows(heading).items():
            assert "refused in this version" not in row, name


def test_every_reducer_is_in_its_table_with_what_binds() -> None:
    facts = {
        name: row.split("|")[3].strip()
        for name, row in _rows("reducer").items()
        if hasattr(engine, name)
    }
    known = {
        name: reducer
        for name, reducer in vars(engine).items()
        if type(reducer).__name__ == "Reducer"
    }
    bound = {name: reducer.bound for name, reducer in known.items()} | {
        "Custom": Custom(max, commutes=True).bound
    }
    assert facts == {name: "yes" if binds else "no" for name, binds in bound.items()}


def test_everything_that_a_node_finds_in_its_context_is_documented() -> None:
    context = Context(
        run_id=UUID(int=0),
        key="k",
        line=1,
        task=Task("n", 1),
        read_input=str,
        open_log=str,
    )
    (table,) = re.findall(
        r"^## What `ctx` has\n\n(\|.*(?:\n\|.*)*)", GRAPHS, re.MULTILINE
    )
    facts = {
        name
        for row in table.splitlines()
        for name in re.findall(r"`(\w+)", row.split("|")[1])
    }
    assert facts == {
        name
        for name in {*vars(context), *dir(type(context))}
        if not name.startswith("_")
    }
