"""The cards of a review: what is there now is the stored base, long values have pages,
large forms open on demand.
"""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import Decision
from approvals.views.card_pages import INLINE, RAW_PAGE
from checkpoints import uploads
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.demo.imports.messy import messy_csv
from orchestrator.engine import END, START, Gate, Graph, Write, registry
from tests.support import claims
from tests.support.cast import People

Browse = Callable[[User], Client]


@pytest.fixture
def browse() -> Callable[[User], Client]:
    def as_(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return as_


def graph_of(now: Any, proposed: Any, **gate: Any) -> Graph:
    """Set the channel to `now`, then proposes."""
    graph = Graph("cards", input=claims.Claim, state=claims.Anything)

    @graph.node()
    def set_now(state: Any, ctx: Any) -> Any:
        return {"anything": now}

    @graph.node(effect="human", gate=Gate(reviewers=["group:reviewer"], **gate))
    def propose(state: Any, ctx: Any) -> Any:
        return [Write("anything", proposed, label="Anything")]

    graph.edge(START, "set_now")
    graph.edge("set_now", "propose")
    graph.edge("propose", END)
    return graph


@pytest.fixture
def waiting(people: People) -> Callable[..., Run]:
    """A run that waits with `proposed` where `now` is there."""

    def paused(now: Any, proposed: Any, **gate: Any) -> Run:
        registry.replace(graph_of(now, proposed, **gate))
        return claims.paused("CLM-7", people.starter, graph="cards")

    return paused


def card(client: Client, run: Run, **query: Any) -> Any:
    page = client.get(reverse("review", args=[run.id]), query)
    assert page.status_code == 200
    (slip,) = page.context["page"].slips
    return page, slip


def section(page: Any, slip: Any, part: str) -> str:
    """The part of a card that has that id."""
    html = page.content.decode()
    start = html.index(f'id="{slip.anchor}-{part}"')
    return html[start : html.index("</div>", start)]


def test_now_is_the_stored_base_and_never_a_shape_of_the_proposal(
    waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    run = waiting(
        {"amount": "10.00"},
        {"before": {"amount": "9000.00"}, "after": {"amount": "10.00"}},
    )
    page, slip = card(browse(people.reviewer), run)
    (part,) = slip.shown.parts
    assert [(row.label, row.now.text) for row in part.units] == [
        ("After › Amount", "not there"),
        ("Before › Amount", "not there"),
        ("Amount", "10.00"),
    ]
    assert slip.raw_now.text == '{\n  "amount": "10.00"\n}'
    assert "Nothing changes" not in page.content.decode()


@pytest.mark.parametrize(
    ("now", "proposed"),
    [({"a": 1}, []), (["x"], {"a": 1}), (["1", "2"], [1, 2]), ([True], ["yes"])],
    ids=str,
)
def test_a_change_of_type_alone_is_shown(
    now: Any, proposed: Any, waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    page, slip = card(browse(people.reviewer), waiting(now, proposed))
    assert slip.shown.parts
    assert not slip.shown.same
    assert "Nothing changes" not in page.content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_import_shows_its_own_account_of_a_row_and_what_is_there(
    people: People, browse: Browse
) -> None:
    ref = uploads.save_upload(
        BytesIO(messy_csv(100, 1).encode()), name="rows.csv", by=people.starter
    )
    run = runs.advance(runs.start("csv_import", {"rows": ref}, by=people.starter).id)
    _, slip = card(browse(people.reviewer), run)
    said, more = (part.block for part in slip.shown.parts)
    assert said.heads == ("Before", "After")
    assert more.title == "Other fields"
    sentences = [text for text, _ in slip.shown.lead]
    assert sentences == [
        "Adds 1 item (the list was empty).",
        "What changes, as stated in the proposal:",
    ]


def test_a_list_of_eight_thousand_items_is_decided_page_by_page(
    waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    now = [{"id": n, "name": f"person {n}"} for n in range(8000)]
    proposed = [{**one, "name": "nobody"} if one["id"] % 3 == 0 else one for one in now]
    run = waiting(now, proposed)
    client = browse(people.reviewer)
    page, slip = card(client, run)
    steps = slip.drawing.steps
    assert steps.scanned <= 5 * 8000
    assert steps.taken <= steps.most
    assert len(page.content) < 100_000
    assert slip.shown.pager.pages > 1
    last = slip.shown.pager.pages - 1
    page, slip = card(client, run, part=f"{slip.write}.change.{last}")
    assert "person 7998" in section(page, slip, "change")
    page, slip = card(client, run, part=f"{slip.write}.change.999999")
    assert slip.shown.pager.number == last


@pytest.mark.parametrize(
    "part",
    [
        "",
        "x",
        "..",
        "0.change.1",
        "{write}.change.-1",
        "{write}.change.٣",
        "{write}.change." + "9" * 5000,
    ],
)
def test_a_page_that_cannot_be_read_is_the_first(
    part: str, waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    run = waiting(None, [f"note {n}" for n in range(100)])
    client = browse(people.reviewer)
    _, slip = card(client, run)
    _, slip = card(client, run, part=part.format(write=slip.write))
    assert slip.shown.pager.number == 0


def test_raw_json_is_the_stored_value_and_large_values_show_it_page_by_page(
    waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    value = {
        "text": "\u202e\u00a0é",
        "list": [f"note {n}" for n in range(RAW_PAGE // 8)],
    }
    run = waiting({"x": 1.0}, value)
    client = browse(people.reviewer)
    page, slip = card(client, run)
    assert slip.raw.closed is True
    assert slip.raw.text == ""
    assert slip.raw.size > INLINE
    assert slip.raw.fingerprint in page.content.decode()
    raw = ""
    number = 0
    while True:
        _, slip = card(client, run, part=f"{slip.write}.json.{number}")
        raw += slip.raw.text
        if slip.raw.pager.later is None:
            break
        number = slip.raw.pager.later
    assert number > 0
    assert raw.isascii() or "\u202e" not in raw
    assert json.loads(raw) == value
    assert json.loads(slip.raw_now.text) == {"x": 1.0}


def posted(slip: Any, verdict: str, **options: str) -> dict[str, str]:
    return {
        "key": "k",
        "write": slip.write,
        f"h-{slip.write}": slip.hash,
        f"v-{slip.write}": verdict,
        f"r-{slip.write}": "because",
        **options,
    }


def test_an_edit_whose_form_was_not_open_is_refused_and_the_form_opens(
    waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    run = waiting(None, [f"note {n}" for n in range(10_000)])
    client = browse(people.reviewer)
    _, slip = card(client, run)
    assert slip.editable is True
    assert slip.control is None
    answer = client.post(reverse("sign", args=[run.id]), posted(slip, "edit"))
    assert answer.status_code == 422
    assert "edit form was not open" in answer.content.decode()
    assert answer.context["page"].slips[0].control is not None
    assert not Decision.objects.exists()


def test_a_large_value_is_edited_in_the_form_that_was_asked_for(
    waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    run = waiting(None, [f"note {n}" for n in range(10_000)])
    client = browse(people.reviewer)
    _, slip = card(client, run)
    _, slip = card(client, run, edit=slip.write)
    assert slip.control.kind == "json"
    answer = client.post(
        reverse("sign", args=[run.id]),
        posted(slip, "edit", **{f"e-{slip.write}": '["other"]'}),
    )
    assert answer.status_code == 302
    assert Decision.objects.get().verdict == "edit"


def test_a_channel_that_belongs_to_the_decision_is_shown_as_raw_json(
    waiting: Callable[..., Run], people: People, browse: Browse
) -> None:
    run = waiting(["what\u200bis there"], 1, shows=["anything"])
    _, slip = card(browse(people.reviewer), run)
    (beside,) = slip.beside
    assert beside.label == "Anything"
    assert beside.text == '[\n  "what\\u200bis there"\n]'
