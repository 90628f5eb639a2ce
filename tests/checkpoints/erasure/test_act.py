"""Erasing a run: nothing of a person is found any more, and everything still verifies."""

import pytest

from checkpoints import retention, verification
from tests.support import cast, erasures, secret_claim

pytestmark = pytest.mark.django_db(transaction=True)


def test_after_an_erasure_no_value_of_the_run_is_found_anywhere(people: cast.People) -> None:
    secret_claim.registered(encrypted=False)
    run = erasures.whole_story(people)
    print(sorted(erasures.marks_in(erasures.everything())))
    assert verification.verify_run(run.id) == []
    record = retention.erase(run.id, reason="asked to be forgotten", by=people.steward)
    assert erasures.marks_in(erasures.everything()) == set()
    assert [fault.reason for fault in verification.verify_run(run.id)] == []
