"""The reference data has what each folder of the reviewer's inbox lists."""

import pytest
from django.contrib.auth.models import User

from approvals import drafts, folders
from approvals.models import Draft
from checkpoints.models import PendingWrite, Run
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_reviewer_has_drafts_and_expired_requests_of_copies() -> None:
    data = ReferenceData()
    list(data.grow(120))
    copied = Run.objects.filter(key__startswith="reference-").values("id")
    reviewer = User.objects.get(username=reference_data.REVIEWER)

    drafted = folders.drafted_by(reviewer).filter(run__in=copied)
    expired = folders.expired_for(reviewer).filter(run__in=copied)

    # One of each twenty runs, of which the first sixty are of the reviewer's graphs.
    assert len(drafted) == 3
    assert len(expired) == 3
    for request in drafted:
        [choice] = drafts.drafts_of(reviewer, request.run).values()
        write = PendingWrite.objects.get(write=choice.write)
        assert write.run_id == request.run_id
        assert choice.hash == write.hash
    assert Draft.objects.filter(run__in=copied).count() == 3
