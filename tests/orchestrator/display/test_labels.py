"""Words for kinds, statuses and effects: each kind of job has a sentence."""

from orchestrator.display import labels
from orchestrator.jobs.kinds import KINDS
from tests.house import stored_names


def test_every_kind_of_job_has_a_sentence_on_the_workers_page() -> None:
    assert set(KINDS) <= set(labels.JOBS)


def test_every_line_of_a_runs_log_has_words_of_its_own() -> None:
    assert stored_names.EVENTS - set(labels.EVENTS) == set()
