"""Nothing invisible reaches a reader: whatever a run, a node or a person brought is
written out on every page.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals import reviews
from approvals.models import Receipt
from checkpoints.models import PendingWrite, Run
from orchestrator import runs
from orchestrator.engine import END, START, Fact, Gate, Graph, Show, Write
from tests.support import claims
from tests.support.cast import People

Browse = Callable[[User], Client]
UNSEEN = (
    "\u202e\u2066\u200b\u061c\u0085\u2028\u2029\u3164\u2800\u00a0\U000e0041\ufe0f\x07"
)
ODD = f"a{UNSEEN}b"
EDITED = re.compile(
    r'<textarea.*?</textarea>|<input [^>]*value="[^"]*"[^>]*>', re.DOTALL
)
"""What is edited must be the text itself; a hint beside it says what cannot be seen."""


@pytest.fixture
def odd_graph(db: None) -> Iterator[None]:
    graph = Graph(
        "odd",
        input=claims.Claim,
        state=claims.Anything,
        label="Claim {claim_id}",
        facts=[Fact(f"Fact {ODD}", "input.claim_id", True)],
    )
    shows = {"anything": Show(reversible=f"It stays {ODD}.")}

    @graph.node(effect="read")
    def read(state: Any, ctx: Any) -> Any:
        return {"anything": {ODD: [ODD, {ODD: ODD}], "text": ODD}}

    gate = Gate(
        reviewers=["group:reviewer"],
        title=f"Pay {{input.claim_id}} {ODD}?",
        facts=[Fact(f"Holder {ODD}", "input.holder"), Fact("Photos", "input.photos")],
        needs_approval=lambda state, proposal: f"because {ODD}",
        shows=["anything"],
        writes=shows,
        quorum=2,
    )

    @graph.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> Any:
        long = [f"{ODD} {n}" for n in range(60)]
        value = {
            ODD: {ODD: ODD},
            "list": long,
            "letter": f"Dear {ODD},\n\n{ODD * 50}",
            "text": f"{ODD}!",
        }
        return [Write("anything", value, label=f"Pay {ODD}")]

    @graph.node(effect="external", idempotent=True)
    def pay(state: Any, ctx: Any) -> Any:
        raise RuntimeError(f"it does not answer {ODD}")

    graph.edge(START, "read")
    graph.edge("read", "propose")
    graph.edge("propose", "pay", when=("approved", "partial", "rejected"))
    graph.edge("pay", END)
    with claims.registered(graph):
        yield


@pytest.fixture
def odd_people(people: People) -> People:
    for user in (people.starter, people.reviewer, people.second_reviewer):
        user.first_name = f"Ann{ODD}"
        user.last_name = f"Lund{ODD}"
        user.save()
    return people


def started(people: People, key: str) -> Run:
    run_input = {
        "claim_id": f"CLM {ODD}",
        "amount": "1",
        "holder": {"name": ODD, "phone": ODD},
        "photos": [ODD, f"{ODD}2"],
    }
    return runs.advance(runs.start("odd", run_input, key=key, by=people.starter).id)


def signed(run: Run, user: User, **how: Any) -> Receipt:
    write = PendingWrite.objects.filter(run=run).order_by("-revision").first()
    assert write is not None
    decision = {
        "write": str(write.write),
        "hash": write.hash,
        "verdict": "approve",
        "reason": f"since {ODD}",
        **how,
    }
    return reviews.sign(run.id, [decision], by=user)


def shown(client: Client, path: str, status: int = 200) -> str:
    """The page, without what is edited on it."""
    answer = client.get(path)
    assert answer.status_code == status
    html = EDITED.sub("", answer.content.decode())
    unseen = {f"U+{ord(letter):04X}" for letter in UNSEEN if letter in html}
    places = [
        html[max(0, at.start() - 60) : at.start()]
        for at in re.finditer(f"[{UNSEEN}]", html)
    ]
    assert unseen == set(), places[:3]
    return html


def test_nothing_invisible_is_on_any_page(
    odd_graph: None, odd_people: People, browse: Browse
) -> None:
    people = odd_people
    key = f"key{ODD}"
    reviewer = browse(people.reviewer)
    starter = browse(people.starter)
    run = started(people, key)
    review = reverse("review", args=[run.id])
    home = reverse("run", args=[run.id])
    assert "⟨U+202E⟩" in shown(reviewer, reverse("inbox"))
    write = PendingWrite.objects.get(run=run)
    for part in ("change", "same", "json", "now", "beside0"):
        assert "⟨U+202E⟩" in shown(reviewer, f"{review}?part={write.write}.{part}.0")
    assert "⟨U+202E⟩" in shown(starter, reverse("runs"))
    value = {"list": [ODD], "letter": ODD, "text": ODD}
    receipts = [
        signed(run, people.reviewer, verdict="edit", value=value),
        signed(run, people.second_reviewer),
    ]
    shown(reviewer, review)
    for user, receipt in zip(
        (people.reviewer, people.second_reviewer), receipts, strict=True
    ):
        assert "⟨U+202E⟩" in shown(browse(user), reverse("receipt", args=[receipt.id]))
    assert runs.advance(run.id).status == "failed"
    for tab in ("changed", "state", "writes", "results", "events"):
        for at in ("", "&at=1", "&at=2", "&at=3"):
            assert "⟨U+202E⟩" in shown(starter, f"{home}?tab={tab}{at}")
    shown(starter, reverse("settle", args=[run.id]))
    shown(starter, reverse("cancel", args=[run.id]))
    runs.cancel(run.id, by=people.starter, reason=f"no longer {ODD}")
    assert "no longer" in shown(starter, home)
    shown(reviewer, review)


def test_a_refusal_names_what_was_typed_visibly(
    odd_graph: None, odd_people: People, browse: Browse
) -> None:
    people = odd_people
    run = started(people, "key")
    client = browse(people.reviewer)
    slip = client.get(reverse("review", args=[run.id])).context["page"].slips[0]
    posted = {
        "key": "k",
        "write": slip.write,
        f"h-{slip.write}": slip.hash,
        f"v-{slip.write}": "edit",
    }
    answer = client.post(
        reverse("sign", args=[run.id]), {**posted, f"e-{slip.write}": f"{{{ODD}"}
    )
    assert answer.status_code == 422
    assert not re.search(f"[{UNSEEN}]", EDITED.sub("", answer.content.decode()))


def test_an_input_says_what_it_cannot_show(
    claim_graph: None, people: People, browse: Browse
) -> None:
    run_input = {"claim_id": "CLM-2", "amount": "1", "holder": {"name": "Ann\u200b"}}
    run = runs.advance(runs.start("page_claim", run_input, by=people.starter).id)
    html = (
        browse(people.reviewer).get(reverse("review", args=[run.id])).content.decode()
    )
    assert "It holds what cannot be seen here: ⟨U+200B⟩." in html


def test_a_page_without_a_run_shows_what_was_looked_for(
    people: People, browse: Browse
) -> None:
    shown(browse(people.starter), f"/runs/{ODD.replace(chr(7), '')}/", status=404)
