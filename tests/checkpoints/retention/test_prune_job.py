"""A removal takes what the policy does not keep, leaves everything else as it was, and
says what it did.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals.audit.words import sentence_of
from checkpoints import retention, timeline
from checkpoints.models import AuditLine, Checkpoint, Job, Run, RunEvent
from checkpoints.retention import DryRun, prune_job, stretches
from checkpoints.store import CheckpointStore
from orchestrator import runs
from orchestrator.engine.errors import Forbidden, InvalidValue, WrongStatus
from orchestrator.jobs import kinds
from tests.support import cast
from tests.support.chain import join_in_a_row
from tests.support.forging import tamper
from tests.support.histories import faults, loaded, long_run, policy, pruned, seqs
from tests.support.large_states import large
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced, graph, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)
NODES = "abcdefgh"


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("keep", [0, 1, 2, 5, 8])
def test_the_newest_stay_and_load_as_before(
    keep: int, encrypted: bool, configure: Any
) -> None:
    configure(**ONE_KEY)
    run = long_run(encrypted=encrypted)
    before = loaded()
    job = pruned(policy("long", keep_last=keep))
    assert seqs(run) == list(range(9))[-max(keep, 1) :]
    after = loaded()
    assert after == {one: before[one] for one in after}
    assert faults() == []
    assert job.progress["done"] == 9 - max(keep, 1)
    (line,) = RunEvent.objects.filter(run=run, type="history_removed")
    assert timeline.payload_of(line)["checkpoints"]["count"] == 9 - max(keep, 1)


def test_the_log_of_a_run_says_who_removed_what_and_when_and_what_holds_the_rest(
    people: cast.People,
) -> None:
    run = long_run()
    before = timezone.now()
    pruned(policy("long", keep_last=2), by=people.steward)
    (line,) = RunEvent.objects.filter(run=run, type="history_removed")
    assert line.actor == people.steward.username
    assert before <= line.at <= timezone.now()
    first = Checkpoint.objects.filter(run=run).order_by("seq")[0]
    assert timeline.payload_of(line)["snapshots"] == [
        [str(first.id), first.snapshot_hash]
    ]
    assert faults() == []
    for changed in ({"actor": "nobody"}, {"at": before}):
        tamper(line, **changed)
        assert faults() != []
        tamper(line, actor=line.actor, at=line.at)
    assert faults() == []


def test_the_numbers_of_the_dry_run_are_what_is_then_removed(
    people: cast.People,
) -> None:
    run = long_run()
    other = long_run()
    retention.hold(other.id, "a court asked", by=people.steward)
    pinned = Checkpoint.objects.get(run=run, seq=3)
    retention.pin(pinned.id, by=people.steward)
    runs.fork(Checkpoint.objects.get(run=run, seq=5).id)
    rule = policy("long", keep_last=2)
    count, size, examples, reasons = retention.dry_run(rule)
    fork = Run.objects.exclude(origin_checkpoint=None).get()
    assert {why: reason["count"] for why, reason in reasons.items()} == {
        "old": 5,
        "held": 9,
        "head": 1 + 1,
        "pinned": 1,
        "forked_from": 1,
        "policy": 1,
    }
    assert count["checkpoints"] == 5
    assert count["runs"] == 0
    assert len(examples) == 5
    job = pruned(rule, by=people.steward)
    assert seqs(run) == [3, 5, 7, 8]
    assert len(seqs(other)) == 9
    assert seqs(fork) == [0]
    assert job.progress["place"] | {"rows": 5, "bytes": size} == job.progress["place"]
    line = AuditLine.objects.get(kind="history_pruned")
    assert line.actor == people.steward
    assert line.facts["checkpoints"] == 5
    assert line.facts["bytes"] == size
    assert faults() == []


def test_no_run_is_passed_over_among_those_that_were_started_at_one_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [long_run() for _ in range(5)]
    Run.objects.filter(id__in=[run.id for run in made]).update(
        created_at=timezone.now()
    )
    monkeypatch.setattr(prune_job, "LOOKED_AT", 2)
    job = pruned(policy("long", keep_last=2))
    assert job.progress["done"] == 5 * 7
    assert [seqs(run) for run in made] == [[7, 8]] * 5


def test_a_second_removal_finds_nothing_and_a_later_one_goes_on_from_the_first(
    people: cast.People,
) -> None:
    run = long_run()
    pruned(policy("long", keep_last=6))
    assert retention.dry_run(policy("long", keep_last=6)).counts["checkpoints"] == 0
    retention.pin(Checkpoint.objects.get(run=run, seq=5).id, by=None)
    pruned(policy("long", keep_last=2))
    assert seqs(run) == [5, 7, 8]
    retention.unpin(Checkpoint.objects.get(run=run, seq=5).id, by=None)
    pruned(policy("long", keep_last=1))
    assert seqs(run) == [8]
    assert faults() == []


def test_ages_by_status_go_before_the_number_and_only_where_the_status_has_one() -> (
    None
):
    run = long_run()
    rule = policy("long", keep_last=2, max_age_days={"completed": 30})
    assert retention.dry_run(rule).counts["checkpoints"] == 0
    assert (
        retention.dry_run(
            policy("long", keep_last=2, max_age_days={"failed": 30})
        ).counts["checkpoints"]
        == 7
    )
    assert (
        retention.dry_run(
            policy("long", keep_last=None, max_age_days={"failed": 0})
        ).counts["checkpoints"]
        == 0
    )
    pruned(policy("long", keep_last=None, max_age_days={"completed": 0}))
    assert seqs(run) == [8]


def test_a_run_goes_on_behind_what_was_removed_of_it(configure: Any) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(large("goes_on", NODES, snapshot=1000))
    rule = policy("goes_on", keep_last=1)
    while run.status == "queued":
        run = slice_of(run)
        pruned(rule)
    assert run.status == "completed"
    assert seqs(run) == [8]
    assert faults() == []


def test_the_rows_from_which_a_worker_continues_stay() -> None:
    run = long_run()
    Run.objects.filter(id=run.id).update(lease_until="2100-01-01T00:00:00Z")
    counts = retention.dry_run(policy("long", keep_last=1))
    assert {why: reason["count"] for why, reason in counts.reasons.items()} == {
        "head": 1,
        "in_hand": 8,
    }


def test_a_run_that_does_not_verify_is_tampered_and_nothing_of_it_is_removed(
    people: cast.People,
) -> None:
    run = long_run()
    good = long_run()
    tamper(Checkpoint.objects.get(run=run, seq=4), took_ms=99)
    pruned(policy("long", keep_last=1), by=people.steward)
    run.refresh_from_db()
    assert run.status == "tampered"
    assert len(seqs(run)) == 9
    assert seqs(good) == [8]
    line = AuditLine.objects.get(kind="history_pruned")
    assert line.facts["skipped"] == 1
    assert line.facts["bad"] == [str(run.id)]
    assert AuditLine.objects.filter(kind="refused_tampered", run=run.id).exists()
    assert (
        retention.dry_run(policy("long", keep_last=1)).reasons["tampered"]["count"] == 9
    )


def test_runs_that_do_not_verify_are_all_counted_where_not_all_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prune_job, "MOST_NAMED", 1)
    for run in (long_run(), long_run()):
        tamper(Checkpoint.objects.get(run=run, seq=4), took_ms=99)
    pruned(policy("long", keep_last=1))
    facts = AuditLine.objects.get(kind="history_pruned").facts
    assert len(facts["bad"]) == 1
    assert (
        sentence_of("history_pruned", facts)
        == "removed 0 checkpoints; 2 runs did not verify and stayed"
    )


def test_a_point_that_a_store_forked_stays() -> None:
    run = long_run()
    CheckpointStore().fork(Checkpoint.objects.get(run=run, seq=4).id)
    pruned(policy("long", keep_last=1))
    assert seqs(run) == [4, 8]


def test_a_point_that_a_fork_of_a_stores_fork_comes_from_stays() -> None:
    run = long_run()
    store = CheckpointStore()
    first = store.fork(Checkpoint.objects.get(run=run, seq=4).id)
    second = store.fork(first.id)
    for act in (lambda: store.clear(first.run), lambda: store.delete(first.id)):
        with pytest.raises(WrongStatus, match="comes from its origin by this one"):
            act()
    pruned(policy("long", keep_last=1))
    assert seqs(run) == [4, 8]
    assert runs.advance(runs.resume(second.run).id).status == "completed"
    other = store.fork(Checkpoint.objects.get(run=run, seq=8).id)
    assert store.clear(other.run) == 1
    assert faults() == []


def test_keys_that_look_like_patterns_touch_no_other_run() -> None:
    names = ["a%", "ab", "a_", "abc"]
    registered = large("odd", NODES, snapshot=1000)
    started(registered)
    made = {name: runs.advance(runs.start("odd", {}, key=name).id) for name in names}
    for name in ("ab", "abc"):
        retention.hold(made[name].id, "stays", by=None)
    pruned(policy("odd", keep_last=1))
    assert {name: len(seqs(run)) for name, run in made.items()} == {
        "a%": 1,
        "ab": 9,
        "a_": 1,
        "abc": 9,
    }


def test_a_removal_by_an_older_policy_is_not_the_answer_to_a_new_one() -> None:
    long_run()
    job = retention.prune(
        policy("long", keep_last=2, max_age_days={"failed": 3}), by=None
    )
    assert (
        retention.prune(policy("long", keep_last=2), by=None, confirmed=7).id == job.id
    )
    for fields in (
        {"keep_last": 5},
        {"max_age_days": {"failed": 9}},
        {"remove_runs_after_days": {"failed": 1}},
    ):
        changed = policy(
            "long",
            **{
                "keep_last": 2,
                "max_age_days": {"failed": 3},
                "remove_runs_after_days": {},
                **fields,
            },
        )
        with pytest.raises(WrongStatus, match="by an older policy is under way"):
            retention.prune(changed, by=None)
    assert Job.objects.filter(kind="prune_runs").count() == 1
    assert prune_job.stop(job.id, by=None)
    assert retention.prune(changed, by=None).id != job.id


def test_who_may_not_and_what_is_not_clear_is_refused(people: cast.People) -> None:
    long_run()
    rule = policy("long", keep_last=1)
    with pytest.raises(Forbidden):
        retention.prune(rule, by=people.reviewer)
    with pytest.raises(WrongStatus, match="8 checkpoints would be removed now"):
        retention.prune(rule, by=people.steward, confirmed=9)
    for fields in (
        {"keep_last": -1},
        {"max_age_days": {"no": 1}},
        {"remove_runs_after_days": {"paused": 1}},
    ):
        with pytest.raises(InvalidValue):
            retention.dry_run(
                policy("long", **{"keep_last": 1, "max_age_days": {}, **fields})
            )
    with pytest.raises(InvalidValue, match="archives"):
        retention.prune(
            policy(
                "long",
                keep_last=1,
                max_age_days={},
                remove_runs_after_days={},
                archive=True,
            ),
            by=None,
        )
    assert Checkpoint.objects.count() == 9


def test_failures_are_kept_longer_where_their_status_has_an_age() -> None:
    flow = graph("fails")
    broken = {1}

    @flow.node("second")
    def second(state: Any, ctx: Any) -> dict[str, Any]:
        if broken:
            raise RuntimeError("no")
        return {"notes": ["second"]}

    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    join_in_a_row(flow, "first", "second")
    failed = advanced(flow)
    broken.clear()
    done = runs.advance(runs.start("fails", {}).id)
    assert failed.status == "failed"
    assert done.status == "completed"
    before = len(seqs(failed))
    later = timezone.now() + timedelta(days=31)
    for days, ages, going in (
        (31, {"failed": 30}, {failed.id}),
        (9, {"failed": 30, "completed": 2}, {done.id}),
    ):
        aged = retention.dry_run(
            policy("fails", max_age_days=ages),
            now=timezone.now() + timedelta(days=days),
        )
        assert {example["run"] for example in aged.examples} == {
            str(id) for id in going
        }
    rule = policy("fails", keep_last=1, max_age_days={"failed": 30})
    pruned(rule)
    assert len(seqs(failed)) == before
    assert seqs(done) == [done.head_seq]
    assert before > 1
    assert kinds.advance(retention.prune(rule, by=None, now=later).id).status == "done"
    assert seqs(failed) == [failed.head_seq]
    assert seqs(done) == [done.head_seq]


@pytest.mark.parametrize(
    ("confirmed", "counted"), [(200, 203), (200, 197), (100, 102), (99, 100), (0, 1)]
)
def test_a_count_that_moved_by_more_than_one_in_a_hundred_is_refused(
    confirmed: int, counted: int
) -> None:
    towards = 1 if counted < confirmed else -1
    with pytest.raises(
        WrongStatus,
        match=f"{counted} checkpoints would be removed now, not the {confirmed}",
    ):
        prune_job.require_confirmed(
            DryRun("any", timezone.now(), {"checkpoints": counted}), confirmed
        )
    prune_job.require_confirmed(
        DryRun("any", timezone.now(), {"checkpoints": counted + towards}), confirmed
    )


@pytest.mark.parametrize("whole", [False, True], ids=["stretch", "whole"])
def test_a_hold_that_is_given_between_the_order_and_its_job_keeps_the_run(
    whole: bool, people: cast.People
) -> None:
    run = long_run()
    other = long_run()
    rule = policy(
        "long", keep_last=1, remove_runs_after_days={"completed": 0} if whole else {}
    )
    job = retention.prune(rule, by=people.steward)
    retention.hold(run.id, "a court asked", by=people.steward)
    assert kinds.advance(job.id).status == "done"
    assert len(seqs(run)) == 9
    assert seqs(other) == ([] if whole else [8])


def test_a_pin_that_is_set_between_two_pieces_keeps_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch, people: cast.People
) -> None:
    run = long_run()
    remove = prune_job.remove_stretch
    removed = list[int]()
    monkeypatch.setattr(stretches, "MOST", 3)
    pinned = Checkpoint.objects.get(run=run, seq=1)

    def piece(*args: Any, **kwargs: Any) -> Any:
        done = remove(*args, **kwargs)
        if not removed:
            retention.pin(pinned.id, by=people.steward)
        removed.append(done.count if done else 0)
        return done

    monkeypatch.setattr(prune_job, "remove_stretch", piece)
    before = loaded()
    pruned(policy("long", keep_last=1))
    assert seqs(run) == [1, 8]
    assert removed[0] == 3
    assert sum(removed) == 7
    assert {row: before[row] for row in loaded()} == loaded()
    assert faults() == []
