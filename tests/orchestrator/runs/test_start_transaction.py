"""A start is part of the caller's transaction."""

import pytest
from django.db import transaction

from checkpoints.models import Run
from tests.races.meeting import Thread
from tests.support.clusters import cluster, ended, slow, status
from tests.support.processes import until

pytestmark = pytest.mark.django_db(transaction=True)


def test_no_worker_sees_a_run_before_its_transaction_commits_or_after_a_rollback(
    tmp_path,
):
    with cluster(tmp_path):
        with transaction.atomic():
            run = slow()
            # Another connection, as a worker's.
            assert not Thread(lambda: Run.objects.filter(id=run.id).exists()).outcome()
        ended(run)
        with transaction.atomic():
            undone = slow()
            transaction.set_rollback(True)
        last = slow()
        ended(last)
        until(lambda: status(last) == "completed")
        assert not Run.objects.filter(id=undone.id).exists()
