"""The main job with real processes: started over HTTP, decided by two people, paid and
written as they decided.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from orchestrator import tokens
from orchestrator.demo import claims
from orchestrator.demo.claims.models import ClaimCase, Payment, PaymentCall
from tests.stories.client import Client
from tests.support import cast
from tests.support.processes import until, web, with_mark, worker

pytestmark = pytest.mark.django_db(transaction=True)
CLAIMS = Path(claims.__file__).parent / "data"
RESTS = {"paused", "completed", "failed", "unknown", "rejected"}
MOMENTS = [
    "before_intent",
    "after_intent",
    "after_effect",
    "before_commit",
    "on_its_way",
    "after_commit",
]


class Office:
    """The people at their clients, and what can be seen of the world outside."""

    def __init__(self, address: str, folder: Path, people: cast.People) -> None:
        self.folder = folder
        group = Group.objects.get_or_create(name="claims")[0]
        group.user_set.add(people.reviewer, people.second_reviewer)
        self.service = self._client(address, people.starter)
        self.rita = self._client(address, people.reviewer)
        self.ravi = self._client(address, people.second_reviewer)

    @staticmethod
    def _client(address: str, user: User) -> Client:
        return Client(address, tokens.make_token(user))

    def start(self, claim: str) -> str:
        """A claim with its file; gives the run's id once it waits for people."""
        file = self.service.upload(CLAIMS / f"{claim}.json")
        run_input = {"claim_id": claim, "amount": "4862.50", "claim_file": file}
        body = {"graph": "claim_payout", "input": run_input, "key": claim}
        status, run = self.service.post("/runs/", body)
        assert status == 201, run
        assert self.rest(run["id"]) == "paused"
        return str(run["id"])

    def rest(self, run: str) -> str:
        """The status in which the run comes to rest."""
        return str(
            until(lambda: self._resting(run), seconds=60, what="the run to rest")
        )

    def _resting(self, run: str) -> str:
        status = self.service.get(f"/runs/{run}/")["status"]
        return status if status in RESTS else ""

    def writes(self, run: str) -> dict[str, Any]:
        """Return what waits for Rita, by channel."""
        mine = self.rita.get("/requests/?waiting=me")["results"]
        request = next(r for r in mine if r["run"] == run)
        detail = self.rita.get(f"/requests/{request['id']}/")
        return {write["channel"]: write for write in detail["writes"]}

    def decide(self, run: str) -> None:
        """Rita approves payment and case, Ravi edits the letter and rejects the
        reserve.
        """
        writes = self.writes(run)
        self.sign(
            self.rita,
            run,
            [
                _verdict(writes["payout"], "approve"),
                _verdict(writes["case_update"], "approve"),
            ],
        )
        letter = {**writes["letter"]["value"], "body": "Dear Marta, we pay."}
        edit = {**_verdict(writes["letter"], "edit"), "value": letter}
        self.sign(
            self.ravi,
            run,
            [
                edit,
                {**_verdict(writes["reserve_release"], "reject"), "reason": "keep it"},
            ],
        )

    @staticmethod
    def sign(who: Client, run: str, decisions: list[Any]) -> None:
        status, receipt = who.post(f"/runs/{run}/signatures/", {"decisions": decisions})
        assert status in (200, 201), receipt
        assert all(line["result"] == "counted" for line in receipt["lines"]), receipt

    def letters(self) -> list[str]:
        return [
            path.read_text() for path in sorted((self.folder / "outbox").glob("*.eml"))
        ]


def _verdict(write: dict[str, Any], verdict: str) -> dict[str, Any]:
    return {"write": write["id"], "hash": write["hash"], "verdict": verdict}


@contextmanager
def _office(folder: Path, people: cast.People, **env: str) -> Iterator[Office]:
    with web(folder / "web.log") as address:
        outside = {
            "COUNTERSIGN_DEMO_PAYMENTS_URL": f"{address}/demo/payments/",
            "COUNTERSIGN_TEST_OUTBOX": str(folder / "outbox"),
        }
        with worker(folder / "worker.log", **outside, **env):
            yield Office(address, folder, people)


def test_a_claim_is_paid_written_and_recorded_exactly_as_two_people_decided(
    tmp_path: Path, people: cast.People
) -> None:
    with _office(tmp_path, people) as office:
        run = office.start("CLM-118834")
        assert Payment.objects.count() == 0, "nothing happens before the signatures"
        assert office.letters() == [], "nothing happens before the signatures"
        office.decide(run)
        assert office.rest(run) == "completed"
        decisions = office.service.get(f"/runs/{run}/decisions/")["results"]
    payment = Payment.objects.get()
    assert PaymentCall.objects.count() == 1
    assert payment.amount > Decimal(0)
    (letter,) = office.letters()
    assert "Dear Marta, we pay." in letter
    case = ClaimCase.objects.get()
    assert case.status == "settled"
    assert case.changes == 1
    assert sorted((d["by"], d["channel"], d["verdict"]) for d in decisions) == [
        ("ravi", "letter", "edit"),
        ("ravi", "reserve_release", "reject"),
        ("rita", "case_update", "approve"),
        ("rita", "payout", "approve"),
    ]


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_endpoint_holds_one_payment_wherever_the_worker_is_killed(
    moment: str, tmp_path: Path, people: cast.People
) -> None:
    with _office(tmp_path, people, **with_mark(tmp_path, f"{moment}:pay")) as office:
        run = office.start("CLM-118834")
        office.decide(run)
        assert office.rest(run) == "completed"
    assert (tmp_path / "killed").exists(), "the worker was never killed"
    assert Payment.objects.count() == 1
    keys = list(PaymentCall.objects.values_list("idempotency_key", flat=True))
    assert len(keys) <= 2
    assert len(set(keys)) == 1
    assert len(office.letters()) == 1
    assert ClaimCase.objects.get().changes == 1


@pytest.mark.parametrize(
    ("moment", "went_out"), [("after_intent", False), ("after_effect", True)]
)
def test_a_letter_that_may_have_gone_out_is_settled_by_a_person_and_never_sent_twice(
    moment: str, went_out: bool, tmp_path: Path, people: cast.People
) -> None:
    with _office(
        tmp_path, people, **with_mark(tmp_path, f"{moment}:send_letter")
    ) as office:
        run = office.start("CLM-118834")
        office.decide(run)
        assert office.rest(run) == "unknown"
        assert len(office.letters()) == int(went_out)
        body = {
            "task": "send_letter:1:0",
            "happened": went_out,
            "reason": "looked into the outbox",
        }
        if went_out:
            body["output"] = {
                "letter_sent": "<found@outbox>",
                "notes": ["letter sent to her"],
            }
        until(
            lambda: office.service.post(f"/runs/{run}/settle/", body)[0] == 200,
            what="the settling to be accepted",
        )
        assert office.rest(run) == "completed"
        state = office.service.get(
            f"/checkpoints/{office.service.get(f'/runs/{run}/')['head']}/state/"
        )
    assert len(office.letters()) == 1
    assert state["scratch"]["outcome"] == "settled"
    assert ClaimCase.objects.get().changes == 1
