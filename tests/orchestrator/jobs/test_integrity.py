"""Verification of all runs looks at the audit log and at tokens too; that of some runs does not."""

import pytest

from checkpoints import audit_log
from checkpoints.models import AuditLine
from orchestrator import runs, tokens
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from orchestrator.models import ApiToken
from tests.support import api_graphs
from tests.support.cast import People
from tests.support.forging import tamper

pytestmark = pytest.mark.django_db(transaction=True)


def _verified(wanted: Wanted) -> Verified:
    result = Verified()
    for _ in verify_runs(wanted, result):
        pass
    return result


def test_all_is_looked_at_where_all_runs_are_wanted(people: People) -> None:
    api_graphs.register()
    run = runs.start("gated", {"claim_id": "C"}, by=people.starter)
    tokens.make_token(people.starter, scopes=["read"])
    audit_log.record("refused", actor=None)
    audit_log.chain_lines()
    assert (_verified(Wanted()).checked, _verified(Wanted()).bad) == (1, [])
    tamper(ApiToken.objects.get(), scopes=["read", "steer"])
    tamper(AuditLine.objects.get(kind="refused"), kind="granted")
    found = _verified(Wanted())
    assert [one["table"] for one in found.bad] == ["checkpoints_auditline", "orchestrator_apitoken"]
    assert (found.checked, found.failed) == (1, 2)
    for some in (Wanted(runs=(str(run.id),)), Wanted(graph="gated"), Wanted(since="2020-01-01T00:00:00+00:00")):
        assert _verified(some).bad == []
