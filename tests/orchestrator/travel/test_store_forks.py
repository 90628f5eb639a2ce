"""A fork that a store made, resumed: a run of its own, which asks whom a fork asks."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission

from checkpoints import key_rotation
from checkpoints.core.ids import uuid7
from checkpoints.core.status import Status
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.store import CheckpointStore
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, Write
from orchestrator.engine.errors import TamperedRow, UnknownThing, WrongStatus
from orchestrator.engine.values import ops
from orchestrator.travel import store_forks as fork_adoption
from tests.support import cast, run_actions
from tests.support.forging import tamper
from tests.support.payload_runs import chain, notes
from tests.support.small_graphs import advanced, graph, registered, started
from tests.support.versioned_graphs import Texts, deployed, in_euros, paying

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_fork_that_is_resumed_gets_its_row_and_goes_on_from_its_point(
    people: cast.People,
) -> None:
    origin = advanced(chain("origin", *"abc", payloads="database"))
    before = list(Checkpoint.objects.filter(run=origin).order_by("seq").values())
    forked = CheckpointStore().fork(f"{origin.key}:step-1", {"scratch": {"total": 7}})
    run = runs.resume(forked.run, by=people.starter)
    assert run.id == forked.run
    assert run.status == Status.QUEUED
    assert run.superstep == 1
    assert run.key == f"{origin.key}~{str(forked.run)[:8]}"
    assert run.origin_checkpoint == before[1]["id"]
    assert run.started_by == people.starter
    assert run.input_hash == origin.input_hash
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert notes(run) == [*"abc"]
    assert run_actions.state(run)["total"] == 7
    assert run_actions.event_payloads(run, "run_started")[0]["origin"] == str(
        before[1]["id"]
    )
    assert list(verify_run(run.id)) == []
    assert list(verify_run(origin.id)) == []
    assert (
        list(Checkpoint.objects.filter(run=origin).order_by("seq").values()) == before
    )


def test_a_fork_of_a_fork_can_be_resumed_and_forks_of_one_minute_have_keys_of_their_own() -> (
    None
):
    origin = advanced(chain("family", *"ab", payloads="database"))
    store = CheckpointStore()
    child = store.fork(f"{origin.key}:step-1")
    others = [store.fork(child.id, {"scratch": {"total": n}}) for n in range(3)]
    made = [runs.advance(runs.resume(one.run).id) for one in [child, *others]]
    assert len({run.key for run in made}) == 4
    assert [run.status for run in made] == [Status.COMPLETED] * 4
    assert [run_actions.state(run)["total"] for run in made] == [0, 0, 1, 2]
    again = store.fork(f"{made[1].key}:step-2", {"scratch": {"total": 9}})
    assert runs.resume(again.run).key.startswith(f"{made[1].key}~")


def test_a_checkpoint_that_was_tampered_with_cannot_be_forked_into_one_that_verifies() -> (
    None
):
    origin = advanced(chain("forged", *"ab", payloads="database"))
    store = CheckpointStore()
    row = Checkpoint.objects.get(run=origin, seq=1)
    forged = reader.document_at(row.id) or {}
    forged["scratch"]["notes"] = ["forged"]
    tamper(
        row,
        change=pack_json([ops.put(forged)]),
        snapshot=pack_json(forged) if row.snapshot else b"",
    )
    for read in (store.get, store.fork):
        with pytest.raises(TamperedRow):
            read(f"{origin.key}:at-1")
    assert not Checkpoint.objects.exclude(run=origin).exists()


def test_a_fork_without_a_run_that_was_tampered_with_cannot_be_forked_again() -> None:
    origin = advanced(chain("forged_fork", *"ab", payloads="database"))
    store = CheckpointStore()
    child = store.fork(f"{origin.key}:step-1")
    tamper(Checkpoint.objects.get(id=child.id), snapshot_hash="0" * 64)
    with pytest.raises(TamperedRow):
        store.fork(child.id)


def test_a_fork_keeps_its_payloads_where_its_graph_says(cellar: Path) -> None:
    origin = advanced(chain("stored", *"ab"))
    forked = CheckpointStore("cellar").fork(f"{origin.key}:step-1")
    run = runs.advance(runs.resume(forked.run).id)
    assert run.status == Status.COMPLETED
    assert run.payloads == "cellar"
    assert list(verify_run(run.id)) == []


def test_a_fork_of_an_encrypted_run_is_encrypted_and_can_be_resumed(
    configure: Any,
) -> None:
    configure(ENCRYPTION_KEYS={"one": bytes(range(32))})
    origin = advanced(chain("secret", *"ab", payloads="database", encrypted=True))
    forked = CheckpointStore().fork(
        f"{origin.key}:step-1", {"scratch": {"letter": "marker-of-a-fork"}}
    )
    row = Checkpoint.objects.get(id=forked.id)
    assert bytes(row.snapshot)[:1] == bytes(row.change)[:1] == b"\x03"

    configure(ENCRYPTION_KEYS={"one": bytes(range(32)), "two": bytes(range(1, 33))})
    run = runs.advance(runs.resume(forked.run).id)
    assert run.status == Status.COMPLETED
    assert run.encrypted is True
    assert run_actions.state(run)["letter"] == "marker-of-a-fork"
    assert list(verify_run(run.id)) == []


@pytest.mark.parametrize("place", ["database", "cellar"])
def test_a_fork_without_a_run_is_rotated_too(
    cellar: Path, settings: Any, place: str
) -> None:
    settings_before = settings.COUNTERSIGN
    keys = {"one": bytes(range(32)), "two": bytes(range(1, 33))}
    settings.COUNTERSIGN = {**settings_before, "ENCRYPTION_KEYS": {"one": keys["one"]}}
    origin = advanced(chain("rotated", "a", payloads=place, encrypted=True))
    forked = CheckpointStore(place).fork(f"{origin.key}:step-1")
    settings.COUNTERSIGN = {**settings_before, "ENCRYPTION_KEYS": keys}
    list(key_rotation.rotate(key_rotation.Rotated()))
    assert key_rotation.behind() == {}
    settings.COUNTERSIGN = {**settings_before, "ENCRYPTION_KEYS": {"two": keys["two"]}}
    document = reader.document_at(forked.id)
    assert document is not None
    assert document["scratch"]["notes"] == ["a"]


def test_what_is_no_fork_is_unknown_still() -> None:
    saved = CheckpointStore().save("mine", {})
    for unknown in (uuid7(), saved.run, "no-such-key"):
        with pytest.raises(UnknownThing):
            runs.resume(unknown)


def test_a_fork_of_a_run_that_a_person_may_not_see_is_unknown(
    people: cast.People, configure: Any
) -> None:
    configure(VERBS_ASK_RIGHTS=True)
    people.nobody.user_permissions.set(Permission.objects.filter(codename="steer_run"))
    origin = advanced(chain("unseen", *"ab", payloads="database"))
    store = CheckpointStore()
    forked = store.fork(f"{origin.key}:step-1")
    orphan = store.fork(store.save("mine", {}).id)
    for unseen in (forked.run, orphan.run):
        with pytest.raises(UnknownThing, match=f"there is no run '{unseen}'"):
            runs.resume(unseen, by=people.nobody)
    assert not Run.objects.filter(id=forked.run).exists()
    assert runs.resume(forked.run, by=people.starter).id == forked.run
    with pytest.raises(WrongStatus, match="it comes from no run"):
        runs.resume(orphan.run, by=people.starter)


def test_two_that_resume_one_fork_get_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    origin = advanced(chain("twice", *"ab", payloads="database"))
    forked = CheckpointStore().fork(f"{origin.key}:step-1")
    load = fork_adoption.load_departure

    def late(checkpoint: Any) -> Any:
        monkeypatch.undo()
        assert runs.resume(forked.run).id == forked.run
        return load(checkpoint)

    monkeypatch.setattr(fork_adoption, "load_departure", late)
    assert runs.resume(forked.run).id == forked.run
    assert Run.objects.filter(id=forked.run).count() == 1


# What a plan asks


def _asked(forked: Any) -> Run:
    """The fork, worked on until it rests: it waits for people, with what the store
    patched as it was before.
    """
    run = runs.advance(runs.resume(forked.run).id)
    assert run.status == Status.PAUSED
    assert run_actions.state(run)["letter"] == ""
    assert list(verify_run(run.id)) == []
    return run


def _gated(name: str, **gate: Any) -> Graph:
    flow = graph(name)
    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"], **gate))(
        lambda state, ctx: [Write("letter", "proposed")]
    )
    flow.edge(START, "first")
    flow.edge("first", "ask")
    flow.edge("ask", END)
    return flow


def test_a_patch_of_a_guarded_channel_needs_its_signatures(people: cast.People) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = advanced(_gated("guarded", writes={"letter": Show()}))
    forked = _asked(
        CheckpointStore().fork(f"{run.key}:step-1", {"scratch": {"letter": "mine"}})
    )
    assert [row.task for row in run_actions.pending(forked)] == ["$patch:1:0"]
    run_actions.sign(forked, rita, ["approve"])
    forked = runs.advance(forked.id)
    assert forked.status == Status.PAUSED
    assert run_actions.state(forked)["letter"] == "mine"
    assert forked.at_node == "ask"


def test_a_patch_of_a_channel_that_a_gated_node_wrote_needs_its_signatures(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = advanced(_gated("wrote"))
    run_actions.sign(run, rita, ["approve"])
    runs.advance(run.id)
    forked = _asked(
        CheckpointStore().fork(f"{run.key}:step-1", {"scratch": {"letter": "mine"}})
    )
    run_actions.sign(forked, rita, ["reject"])
    assert runs.advance(forked.id).status == Status.REJECTED


def test_a_guarded_patch_is_not_laundered_by_a_second_fork() -> None:
    run = advanced(_gated("laundered", writes={"letter": Show()}))
    store = CheckpointStore()
    forked = store.fork(f"{run.key}:step-1", {"scratch": {"letter": "mine"}})
    _asked(store.fork(forked.id))


def test_writes_that_are_held_at_the_point_are_asked_for_anew(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = advanced(_gated("held"))
    forked = _asked(CheckpointStore().fork(f"{run.key}:step-2"))
    before = run_actions.pending(run)[0]
    anew = run_actions.pending(forked)[0]
    assert anew.task == before.task
    assert anew.value == before.value
    assert anew.write != before.write
    run_actions.sign(forked, rita, ["approve"])
    assert runs.advance(forked.id).status == Status.COMPLETED
    assert Run.objects.get(id=run.id).status == Status.PAUSED


def test_before_a_gate_a_fork_asks_again() -> None:
    run = advanced(_gated("asks"))
    forked = CheckpointStore().fork(f"{run.key}:step-1")
    assert runs.advance(runs.resume(forked.run).id).status == Status.PAUSED
    assert run_actions.request(Run.objects.get(id=forked.run)).status == "open"


def test_who_patched_is_not_known_to_a_gate_of_four_eyes() -> None:
    run = advanced(_gated("eyes", four_eyes=True))
    forked = CheckpointStore().fork(f"{run.key}:step-1", {"scratch": {"total": 7}})
    with pytest.raises(WrongStatus, match="four eyes"):
        runs.resume(forked.run)
    assert not Run.objects.filter(id=forked.run).exists()
    _asked(CheckpointStore().fork(f"{run.key}:step-1"))


@pytest.mark.parametrize("now", [{"four_eyes": True}, {"four_eyes": None}])
def test_four_eyes_may_be_in_the_terms_of_a_gate(now: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"four_eyes": False}
    run = advanced(_gated("eyes-in-terms", terms=lambda input: asked))
    forked = CheckpointStore().fork(f"{run.key}:step-1", {"scratch": {"total": 7}})
    asked.update(now)
    with pytest.raises(WrongStatus, match="four eyes"):
        runs.resume(forked.run)
    assert not Run.objects.filter(id=forked.run).exists()


def test_an_effect_that_happened_after_the_point_needs_a_yes() -> None:
    flow = graph("acts")
    flow.node("before")(lambda state, ctx: None)
    flow.node("pay", effect="external", idempotent=True)(lambda state, ctx: None)
    flow.edge(START, "before")
    flow.edge("before", "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    forked = runs.advance(
        runs.resume(CheckpointStore().fork(f"{run.key}:step-1").run).id
    )
    assert forked.status == Status.PAUSED
    assert forked.at_node == "pay"
    assert (
        runs.advance(runs.resume(forked.id, allow_effects=["pay"]).id).status
        == Status.COMPLETED
    )
    allowed = runs.resume(
        CheckpointStore().fork(f"{run.key}:step-1").run, allow_effects=["pay"]
    )
    assert runs.advance(allowed.id).status == Status.COMPLETED
    behind = CheckpointStore().fork(f"{run.key}:step-2")
    assert runs.advance(runs.resume(behind.run).id).status == Status.COMPLETED


def test_an_open_superstep_goes_on_in_the_fork() -> None:
    flow = graph("open")
    broken = [True]
    flow.node("a")(
        lambda state, ctx: {"notes": ["a"]} if not broken else 1 / broken.count(False)
    )  # type: ignore[arg-type, return-value]
    flow.edge(START, "a")
    flow.edge("a", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    forked = CheckpointStore().fork(f"{run.key}:at-1")
    broken.clear()
    run = runs.advance(runs.resume(forked.run).id)
    assert run.status == Status.COMPLETED
    assert notes(run) == ["a"]


def test_a_fork_of_what_belongs_to_no_run_stays_a_checkpoint() -> None:
    store = CheckpointStore()
    saved = store.save(
        "free", {"scratch": {"n": 1}}, graph="free", fingerprint="f" * 64
    )
    forked = store.fork(saved.id)
    with pytest.raises(WrongStatus, match="comes from no run"):
        runs.resume(forked.run)
    assert not Run.objects.filter(id=forked.run).exists()


def test_a_fork_whose_version_is_gone_is_refused_with_its_cure_where_a_migration_leads_on() -> (
    None
):
    run = advanced(paying("1"))
    forked = CheckpointStore().fork(f"{run.key}:step-1", {"scratch": {"total": 7}})
    new = paying("2", Texts)
    new.migration(from_version="1")(in_euros)
    deployed(new)
    with pytest.raises(
        WrongStatus,
        match="a migration sees nothing of what it changed; fork its origin",
    ) as refused:
        runs.resume(forked.run)
    assert not Run.objects.filter(id=forked.run).exists()
    assert f"{run.key}:at-1" in refused.value.message
    fork = runs.fork(f"{run.key}:at-1", patch={"scratch": {"total": "7 euros"}})
    assert run_actions.state(fork)["total"] == "7 euros"


def test_a_fork_of_a_graph_that_is_not_here_says_so() -> None:
    from orchestrator.engine import registry

    run = started(chain("gone", "a", payloads="database"))
    forked = CheckpointStore().fork(f"{run.key}:initial")
    registry.clear()
    with pytest.raises(UnknownThing, match="gone"):
        runs.resume(forked.run)
    registered(chain("gone", "a", payloads="database"))
    assert runs.advance(runs.resume(forked.run).id).status == Status.COMPLETED
