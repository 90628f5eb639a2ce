"""The demo's graphs on the database: started, advanced, signed, and compared with what
was decided.
"""

from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.test import AsyncRequestFactory, RequestFactory

from approvals import reviews
from approvals.api.request_detail import slips_of
from approvals.models import ApprovalRequest
from checkpoints import timeline, uploads
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator import runs
from orchestrator.demo.claims.models import ClaimCase, Payment, PaymentCall
from orchestrator.demo.imports.messy import messy_csv
from orchestrator.demo.imports.models import ImportedRow
from orchestrator.demo.imports.views import imported
from orchestrator.demo.people import CLAIMS
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _endpoint(live_server: Any, settings: Any) -> None:
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{live_server.url}/demo/payments/"


@pytest.fixture
def handler(people: People) -> User:
    """A reviewer who may decide on claims."""
    people.reviewer.groups.add(Group.objects.get_or_create(name=CLAIMS)[0])
    return people.reviewer


def slips(run: Run) -> list[Any]:
    return slips_of(ApprovalRequest.objects.get(run=run))


def decision(slip: Any, verdict: str, value: Any = None) -> dict[str, Any]:
    content = {
        "write": str(slip.row.write),
        "hash": slip.row.hash,
        "verdict": verdict,
        "reason": "as seen",
    }
    return {**content, "value": value} if verdict == "edit" else content


def state_of(run: Run) -> dict[str, Any]:
    state = timeline.head_state(run.id)
    return {**state["scratch"], **state["artifacts"]}


def test_a_claim_is_decided_write_by_write_and_exactly_that_happens(
    people: People, handler: User
) -> None:
    run = runs.start(
        "claim_payout",
        {"claim_id": "CLM-7", "amount": "900.00"},
        key="CLM-7",
        by=people.starter,
    )
    assert runs.advance(run.id).status == "paused"
    payout, letter, case = slips(run)
    assert [
        PaymentCall.objects.count(),
        len(mail.outbox),
        ClaimCase.objects.count(),
    ] == [0, 0, 0]
    less = {**payout.value, "amount": "800.00"}
    reviews.sign(
        run.id,
        [
            decision(payout, "edit", less),
            decision(letter, "reject"),
            decision(case, "approve"),
        ],
        by=handler,
    )
    assert runs.advance(run.id).status == "completed"
    payment = Payment.objects.get()
    call = PaymentCall.objects.get()
    assert str(payment.amount) == "800.00"
    assert call.status == 201
    assert call.idempotency_key == payment.idempotency_key
    assert mail.outbox == []
    assert ClaimCase.objects.get().status == "settled"
    assert state_of(run)["outcome"] == "partly settled"


def test_only_claims_handlers_may_decide_on_claims(
    people: People, handler: User
) -> None:
    run = runs.start(
        "claim_payout", {"claim_id": "CLM-8", "amount": "900.00"}, by=people.starter
    )
    runs.advance(run.id)
    with pytest.raises(Exception, match="review"):
        reviews.sign(
            run.id,
            [decision(slip, "approve") for slip in slips(run)],
            by=people.second_reviewer,
        )
    assert runs.advance(run.id).status == "paused"


def test_a_broken_claim_file_fails_the_run_and_says_why(people: People) -> None:
    ref = uploads.save_upload(BytesIO(b"{"), name="claim.json", by=people.starter)
    run_input = {"claim_id": "CLM-9", "amount": "1.00", "claim_file": ref}
    run = runs.advance(runs.start("claim_payout", run_input, by=people.starter).id)
    assert run.status == "failed"
    assert "claim.json is not JSON (line 1" in unpack_json(run.error)["message"]


def test_fifty_corrections_of_ten_thousand_rows_end_up_exactly_as_decided(
    people: People,
) -> None:
    content = messy_csv(10_000, 50)
    ref = uploads.save_upload(
        BytesIO(content.encode()), name="rows.csv", by=people.starter
    )
    run = runs.advance(runs.start("csv_import", {"rows": ref}, by=people.starter).id)
    assert run.status == "paused"
    shown_slips = slips(run)
    assert len(shown_slips) == 50
    assert not ImportedRow.objects.exists()
    decisions, expected = _mixed(shown_slips)
    reviews.sign(run.id, decisions, by=people.reviewer)
    assert runs.advance(run.id).status == "completed"

    rows = {row.row: row for row in ImportedRow.objects.all()}
    bad = {slip.value[0]["row"] for slip in shown_slips}
    good = [line.split(",") for line in content.splitlines()]
    for number, cells in enumerate(good[1:], 2):
        if number not in bad:
            assert rows.pop(number).values == dict(zip(good[0], cells, strict=True))
    assert {
        number: {name: row.values[name] for name in expected[number]}
        for number, row in rows.items()
    } == expected
    report = state_of(run)["report"]
    assert report["rows"] == 10_000
    assert report["imported"] == 9950 + len(expected)
    assert report["corrected"] == len(expected)
    assert {task["row"] for task in report["left_out"]} == bad - set(expected)


def _mixed(asked: list[Any]) -> tuple[list[dict[str, Any]], dict[int, dict[str, str]]]:
    """Approve, reject and edit by turns; and what is to be in the table of the rows
    that were bad.
    """
    decisions = []
    expected = {}
    for turn, slip in enumerate(asked):
        (correction,) = slip.value
        after = correction["after"]
        row = correction["row"]
        if turn % 3 == 1:
            decisions.append(decision(slip, "reject"))
        elif turn % 3 == 2 and "email" in correction["before"]:
            after = {**(after or {}), "email": f"edited{row}@example.com"}
            decisions.append(decision(slip, "edit", [{**correction, "after": after}]))
            expected[row] = after
        else:
            decisions.append(decision(slip, "approve"))
            if after is not None:
                expected[row] = after
    return decisions, expected


def test_the_state_of_an_import_stays_small(people: People) -> None:
    ref = uploads.save_upload(
        BytesIO(messy_csv(10_000, 50).encode()), name="rows.csv", by=people.starter
    )
    run = runs.advance(runs.start("csv_import", {"rows": ref}, by=people.starter).id)
    assert len(str(state_of(run))) < 30_000


def test_the_imported_rows_can_be_downloaded_as_the_file_was(
    people: People, client: Any
) -> None:
    content = "country,id,email,amount,date\nDE,1,a@example.com,10.00,2026-01-01\n"
    ref = uploads.save_upload(
        BytesIO(content.encode()), name="rows.csv", by=people.starter
    )
    run = runs.advance(runs.start("csv_import", {"rows": ref}, by=people.starter).id)
    client.force_login(people.starter)
    body = b"".join(client.get(f"/demo/rows/{run.id}.csv").streaming_content).decode()
    assert (
        body == "row,country,id,email,amount,date,corrected\r\n"
        "2,DE,1,a@example.com,10.00,2026-01-01,no\r\n"
    )


def test_a_formula_in_an_imported_row_is_none_in_the_download(people: People) -> None:
    content = (
        "country,id,email,amount,date,note\nDE,1,a@example.com,10.00,2026-01-01,=1+1\n"
    )
    ref = uploads.save_upload(
        BytesIO(content.encode()), name="rows.csv", by=people.starter
    )
    run = runs.advance(runs.start("csv_import", {"rows": ref}, by=people.starter).id)
    request = AsyncRequestFactory().get(f"/demo/rows/{run.id}.csv")
    request.user = people.starter
    answer: Any = imported(request, run.id)
    assert answer.is_async, "no server collects all of it first"
    answer = imported(_plain(people.starter), run.id)
    assert b",'=1+1,no" in b"".join(answer.streaming_content)


def _plain(user: Any) -> Any:
    request = RequestFactory().get("/")
    request.user = user
    return request
