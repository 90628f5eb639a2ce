"""Words for kinds, statuses and effects: each kind of job has a sentence."""

from orchestrator.display import labels
from orchestrator.jobs.kinds import KINDS


def test_every_kind_of_job_has_a_sentence_on_the_workers_page() -> None:
    assert set(KINDS) <= set(labels.JOBS)
