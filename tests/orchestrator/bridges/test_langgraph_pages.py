"""The page of a thread speaks LangGraph's words, and offers nothing that only LangGraph can
do.
"""

import re

import pytest
from django.test import Client
from langgraph.types import Command

from checkpoints.models import Checkpoint, Run, RunEvent
from orchestrator.bridges.langgraph import CountersignSaver
from tests.support import cast, forging
from tests.support import langgraph_threads as graphs
from tests.support.langgraph_threads import thread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    """A thread that was answered, and changed at an older checkpoint since."""
    graph = graphs.letter(CountersignSaver())
    config = {**thread("t-1"), "metadata": {"run_id": "run-a"}}
    graph.invoke({"text": "Ada", "notes": []}, config)
    graph.invoke(Command(resume="yes"), config)
    graph.update_state(thread("t-1"), {"text": "Bob"}, as_node="send")
    (old,) = (s for s in graph.get_state_history(thread("t-1")) if s.next == ("ask",))
    graph.update_state(old.config, {"text": "Dear Cleo"}, as_node="write")
    return Run.objects.get()


def _page(client: Client, user: object, run: Run, query: str = "") -> str:
    client.force_login(user)  # type: ignore[arg-type]
    answer = client.get(f"/runs/{run.id}/{query}")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


def _row(page: str, seq: int) -> str:
    (row,) = re.findall(rf'<a id="li-{seq}".*?</a>', page)
    return str(re.sub(r"<[^>]+>", " ", row))


def test_the_list_names_input_loop_update_and_fork(
    people: cast.People, client: Client, run: Run
) -> None:
    page = _page(client, people.steward, run)
    words = [_row(page, seq) for seq in range(run.head_seq + 1)]
    expected = ("begun", "input", "loop", "write", "ask", "send", "update", "fork")
    for word, row in zip(expected, words, strict=True):
        assert word in row
    assert "Manual" not in page
    assert "asked for by a node" not in page


def test_the_list_of_runs_counts_the_checkpoints_of_a_thread_and_names_no_version(
    people: cast.People, client: Client, run: Run
) -> None:
    client.force_login(people.steward)
    page = client.get("/runs/").content.decode()
    (row,) = re.findall(r"<tr id=.*?</tr>", page, re.DOTALL)
    assert row.split("</td>")[-2].endswith(f">{run.head_seq + 1}")
    assert "version" not in row


def test_nothing_is_offered_that_a_thread_cannot_do(
    people: cast.People, client: Client, run: Run
) -> None:
    page = _page(client, people.steward, run)
    for word in ("Fork from", "Replay from", "Rewind to", "not registered here"):
        assert word not in page
    assert "Only LangGraph has its graph" in page
    assert "Export bundle" in page or "Compare" in page


def test_a_checkpoint_is_named_as_in_langgraph(
    people: cast.People, client: Client, run: Run
) -> None:
    page = _page(client, people.steward, run, "?at=4")
    line = RunEvent.objects.get(
        run=run, type="thread_saved", seq=Checkpoint.objects.get(seq=4).event_seq
    )
    assert f'<code class="id">{line.task}</code>' in page
    assert "<dt>Step</dt> <dd>2</dd>" in page
    assert "run-a" in page


def test_writes_are_listed_by_task_and_node(
    people: cast.People, client: Client, run: Run
) -> None:
    page = _page(client, people.steward, run, "?at=3&tab=writes")
    assert '<span class="strong">ask</span>' in page
    assert "__interrupt__" in page
    assert "Dear Ada" in page
    assert "No task wrote anything" in _page(
        client, people.steward, run, "?at=0&tab=writes"
    )


def test_a_page_opens_where_the_line_of_a_checkpoint_is_tampered(
    people: cast.People, client: Client, run: Run
) -> None:
    line = RunEvent.objects.filter(run=run, type="thread_saved").order_by("-seq")[0]
    forging.tamper(line, node="elsewhere")
    assert "In LangGraph" not in _page(client, people.steward, run)
    page = _page(client, people.steward, run, "?tab=writes")
    assert "cannot be opened" in page
