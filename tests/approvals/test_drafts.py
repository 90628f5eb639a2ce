"""Drafts as rows: encrypted as everything else that a person types, sealed, numbered,
and their author's alone.
"""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.drafts import DraftChoice, drafts_of, save_drafts
from approvals.models import Draft
from checkpoints import key_rotation
from checkpoints.core.keyring import ENCRYPTED
from checkpoints.models import Run
from orchestrator import runs
from tests.support import cast, dump, rows, secret_claim
from tests.support.run_actions import pending, sign
from tests.support.secret_claim import marked

pytestmark = pytest.mark.django_db(transaction=True)
WRITE = "0199a1c2-0000-7000-8000-000000000001"


@pytest.fixture
def rita(people: cast.People) -> User:
    people.reviewer.groups.add(Group.objects.get_or_create(name="claims")[0])
    return people.reviewer


def chosen(write: str = WRITE, verdict: str = "edit", **changed: Any) -> DraftChoice:
    fields = {f"e-{write}.memo": marked("typed")}
    own = {
        "write": write,
        "revision": 1,
        "hash": "h" * 64,
        "verdict": verdict,
        "reason": marked("why"),
    }
    return DraftChoice(**{**own, "fields": fields, **changed})


def test_a_draft_of_an_encrypted_run_is_encrypted_and_found_by_a_change_of_keys(
    settings: Any, rita: User
) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, **secret_claim.keys()}
    secret_claim.registered()
    run = runs.advance(runs.start("secret_claim", {"number": "7", "person": "Ada"}).id)
    write = str(pending(run)[0].write)
    assert save_drafts(rita, run, [chosen(write)], number=1)
    assert bytes(Draft.objects.get().choice)[:1] == ENCRYPTED
    assert marked("typed").encode() not in dump.of_database()
    assert marked("why").encode() not in dump.of_database()
    assert drafts_of(rita, run)[write].fields == {f"e-{write}.memo": marked("typed")}
    assert Draft in dict(key_rotation.encryptable())
    sign(run, rita, ["approve"] * len(pending(run)))
    assert not Draft.objects.exists()


@pytest.fixture
def run(people: cast.People) -> Run:
    return rows.a_run()


def test_a_draft_is_its_authors_alone(run: Run, people: cast.People) -> None:
    save_drafts(people.reviewer, run, [chosen()], number=1)
    assert drafts_of(people.second_reviewer, run) == {}
    assert save_drafts(
        people.second_reviewer, run, [chosen(verdict="reject")], number=1
    )
    assert drafts_of(people.reviewer, run)[WRITE].verdict == "edit"


def test_an_older_save_never_replaces_a_newer_one(
    run: Run, people: cast.People
) -> None:
    assert save_drafts(people.reviewer, run, [chosen(verdict="approve")], number=2)
    for number in (1, 2):
        assert not save_drafts(
            people.reviewer, run, [chosen(verdict="reject")], number=number
        )
    assert drafts_of(people.reviewer, run)[WRITE].verdict == "approve"
    assert save_drafts(
        people.reviewer, run, [chosen(verdict="", reason="", fields={})], number=3
    )
    assert drafts_of(people.reviewer, run) == {}


def test_a_draft_that_is_not_as_it_was_saved_is_left_out(
    run: Run, people: cast.People
) -> None:
    save_drafts(people.reviewer, run, [chosen(verdict="reject")], number=1)
    Draft.objects.update(seen_hash="f" * 64)
    assert drafts_of(people.reviewer, run) == {}


def test_saving_takes_the_same_few_statements_for_many_writes(
    run: Run, people: cast.People, django_assert_max_num_queries: Any
) -> None:
    rita = people.reviewer

    def kept(count: int, number: int) -> list[str]:
        many = [chosen(f"0199a1c2-0000-7000-8000-{n:012d}") for n in range(count)]
        with django_assert_max_num_queries(12) as seen:
            assert save_drafts(rita, run, many, number=number)
        return [query["sql"].split(" ", 1)[0] for query in seen.captured_queries]

    assert kept(1, number=1) == kept(40, number=2)
    assert len(drafts_of(rita, run)) == 40
