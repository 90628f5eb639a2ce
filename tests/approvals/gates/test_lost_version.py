"""A signature is refused where the version of the run is gone and the one in its place
could not go on with it.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client as Browser
from django.urls import reverse

from approvals import reviews
from approvals.gates.lost_version import refusal_to_sign
from approvals.models import Decision, Receipt
from checkpoints.models import AuditLine, Run, RunEvent
from orchestrator import runs
from orchestrator.engine.errors import IncompatibleGraph, NotAReviewer
from tests.support import run_actions
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.rows import a_worker
from tests.support.small_graphs import Notes, advanced
from tests.support.versioned_graphs import Copied, Texts, deployed, in_euros, paying

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[..., Browser]


class Numbered(Notes):
    """`Notes` whose letter became a number."""

    letter: int = 0  # type: ignore[assignment]


WITHOUT_GATE = paying("2", nodes=("fetch", "send"))


def asked() -> Run:
    """A run of version 1 that waits for a signature."""
    return advanced(paying("1"))


def rows_of_signing(run: Run) -> list[int]:
    models = (Decision, Receipt, RunEvent, AuditLine)
    return [
        *(model._default_manager.count() for model in models),
        Run.objects.get(id=run.id).event_seq,
    ]


@pytest.mark.parametrize("verdict", ["approve", "reject", ("edit", "Hello")])
def test_a_signature_that_no_worker_could_apply_is_refused_and_nothing_is_written(
    verdict: Any, people: People
) -> None:
    run = asked()
    rita = run_actions.reviewer(people.reviewer)
    deployed(paying("2", Texts))
    before = rows_of_signing(run)
    with pytest.raises(IncompatibleGraph) as refused:
        run_actions.sign(run, rita, [verdict])
    assert "began with version 1 of paying" in refused.value.message
    assert "channel `total`: number became text" in refused.value.message
    assert (
        "Deploy version 1 beside version 2, or a migration that leads there"
        in refused.value.message
    )
    assert rows_of_signing(run) == before
    assert runs.get(run.id).status == "paused"


@pytest.mark.parametrize(
    ("new", "changed", "cure"),
    [
        (
            WITHOUT_GATE,
            "node `propose`: was removed, and the run was about to go on there",
            "or fork the run",
        ),
        (
            paying("2", Numbered),
            "channel `letter`: text became number",
            "or a migration that leads there",
        ),
        (
            paying("1", Texts),
            "channel `total`: number became text",
            "Raise the version of what is here",
        ),
        (
            paying("2", effect="external"),
            "node `send`: effect pure became external",
            "or fork the run",
        ),
    ],
    ids=[
        "the gate is gone",
        "what is signed is of another type",
        "same version",
        "an effect changed",
    ],
)
def test_the_refusal_names_what_changed_and_what_to_do(
    new: Any, changed: str, cure: str
) -> None:
    run = asked()
    deployed(new)
    refusal = refusal_to_sign(run)
    assert refusal is not None
    assert changed in refusal.message
    assert cure in refusal.message
    assert refusal.code == "incompatible_graph"
    assert refusal.facts["version"] == new.version
    assert changed in [
        f"{change['what']}: {change['said']}" for change in refusal.facts["changes"]
    ]


def test_a_worker_would_have_stopped_the_run_that_is_refused(people: People) -> None:
    run = asked()
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    deployed(paying("2", Texts))
    assert refusal_to_sign(run) is not None
    assert runs.advance(run.id).status == "incompatible"


@pytest.mark.parametrize(
    "new", [paying("2", Copied), paying("2", quorum=2), paying("2", title="Pay?")]
)
def test_where_the_new_version_goes_on_with_the_run_it_is_signed(
    new: Any, people: People
) -> None:
    run = asked()
    deployed(new)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert runs.advance(run.id).status == "completed"


def test_where_a_migration_leads_to_the_new_version_it_is_signed(
    people: People,
) -> None:
    run = asked()
    new = paying("2", Texts)
    new.migration(from_version="1")(in_euros)
    deployed(new)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert runs.advance(run.id).status == "completed"


def test_where_a_live_worker_has_the_version_of_the_run_it_is_signed(
    people: People,
) -> None:
    run = asked()
    a_worker(fingerprints=[run.fingerprint])
    deployed(paying("2", Texts))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert Decision.objects.get().verdict == "approve"


def test_a_run_of_a_newer_version_is_signed_though_no_worker_here_can_judge_it(
    people: People,
) -> None:
    deployed(paying("1", Texts))
    deployed(paying("2"))
    run = advanced(paying("2"))
    deployed(paying("1", Texts))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert runs.advance(run.id).status == "queued"


def test_where_the_version_of_the_run_is_here_nothing_is_asked_of_the_database(
    django_assert_num_queries: Any,
) -> None:
    run = asked()
    with django_assert_num_queries(0):
        assert refusal_to_sign(run) is None
    deployed(paying("1"), paying("2", Texts))
    with django_assert_num_queries(0):
        assert refusal_to_sign(run) is None


def test_who_may_not_decide_is_told_that_first(people: People) -> None:
    run = asked()
    deployed(paying("2", Texts))
    with pytest.raises(NotAReviewer):
        run_actions.sign(run, people.nobody, ["approve"])


def test_the_review_page_says_so_before_one_signs_and_offers_no_signing(
    people: People, browse: Browse
) -> None:
    run = asked()
    client = browse(run_actions.reviewer(people.reviewer))
    page = client.get(reverse("review", args=[run.id]))
    address = reverse("sign", args=[run.id])
    (slip,) = page.context["page"].slips
    posted = {
        "key": "k",
        "write": [slip.write],
        f"v-{slip.write}": "approve",
        f"h-{slip.write}": slip.row.hash,
    }
    deployed(paying("2", Texts))
    page = client.get(reverse("review", args=[run.id]))
    html = page.content.decode()
    assert "Nothing can be signed here now." in html
    assert "channel `total`: number became text" in html
    assert "Nobody can sign this now" in html
    assert page.context["page"].may_sign is False
    assert 'id="sign"' not in html
    answer = client.post(address, posted)
    assert answer.status_code == 409
    assert "channel `total`: number became text" in answer.content.decode()
    assert not Decision.objects.exists()


def test_the_page_of_the_run_says_that_nobody_can_sign_and_what_breaks_it(
    people: People, browse: Browse
) -> None:
    run = asked()
    deployed(paying("2", Texts))
    html = browse(people.steward).get(reverse("run", args=[run.id])).content.decode()
    assert "Nobody can sign what it asks" in html
    assert "channel `total`: number became text" in html
    assert "approved or rejected as it is" not in html


def test_the_api_answers_409_with_the_changes_and_the_request_says_so_before(
    people: People,
) -> None:
    run = asked()
    rita = Client(run_actions.reviewer(people.reviewer))
    deployed(paying("2", Texts))
    (row,) = run_actions.pending(run)
    shown = rita.get(f"requests/{run_actions.request(run).id}/").json()
    assert shown["may_decide"]["yes"] is False
    assert "channel `total`: number became text" in shown["may_decide"]["why_not"]
    body = {
        "decisions": [{"write": str(row.write), "hash": row.hash, "verdict": "approve"}]
    }
    for path in (
        f"runs/{run.id}/signatures/",
        f"requests/{run_actions.request(run).id}/decisions/",
    ):
        answer = rita.post(path, body)
        assert answer.status_code == 409
        assert answer.json()["code"] == "incompatible_graph"
        assert "channel `total`" in [
            change["what"] for change in answer.json()["changes"]
        ]
    assert not Decision.objects.exists()


def test_an_act_that_counted_before_the_deployment_gives_its_receipt_again(
    people: People,
) -> None:
    run = asked()
    rita = run_actions.reviewer(people.reviewer)
    (row,) = run_actions.pending(run)
    decisions = [{"write": str(row.write), "hash": row.hash, "verdict": "approve"}]
    first = reviews.sign(run.id, decisions, by=rita, idempotency_key="once")
    deployed(paying("2", Texts))
    assert (
        reviews.sign(run.id, decisions, by=rita, idempotency_key="once").id == first.id
    )
