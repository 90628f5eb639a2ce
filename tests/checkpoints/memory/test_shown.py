"""What a checkpoint answers of memory: what its superstep read, and what landed with
it.
"""

from typing import Any

import pytest
from django.contrib.auth.models import User

from checkpoints import retention, timeline
from checkpoints.memory.read_records import memory_at
from checkpoints.models import MemoryLanding, MemoryRecord, MemoryTrace, TaskResult
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support.memory_graphs import GATE, chain, gone, remember
from tests.support.page_people import browse

__all__ = ["browse"]

pytestmark = pytest.mark.django_db(transaction=True)


def _memory(key: str, superstep: int) -> Any:
    return memory_at(timeline.get_checkpoint(f"{key}:step-{superstep}"))


@pytest.mark.parametrize(("mode", "content"), [("live", None), ("snapshot", "blue")])
def test_a_checkpoint_says_what_was_read_with_its_strength_and_what_landed(
    mode: str, content: Any
) -> None:
    remember("sky", "blue", strength=0.5)

    def look(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")
        ctx.memory.get("none", "facts")

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "grey", "facts")

    def idle(state: Any, ctx: Any) -> None:
        pass

    run = gone(chain("shown", look, put, idle, memory=mode))
    read, none = _memory(run.key, 1)["reads"]
    assert read == {
        "task": "look:1:0",
        "kind": "get",
        "asked": ["facts", "sky"],
        "mode": mode,
        "unrecorded": False,
        "traces": [
            {
                "namespace": "facts",
                "key": "sky",
                "version": 1,
                "strength": 0.5,
                "content": content,
            }
        ],
    }
    assert none["traces"] == []
    landed = [
        {
            "task": "put:1:0",
            "n": 0,
            "namespace": "facts",
            "key": "sky",
            "version": 2,
            "deleted": False,
            "change": "updated",
        }
    ]
    changes = {"added": [], "updated": ["facts/sky"], "removed": []}
    assert _memory(run.key, 2) == {"reads": [], "landed": landed, **changes}
    assert _memory(run.key, 3) is None


def test_a_checkpoint_says_which_keys_were_added_updated_and_removed(
    browse: Any, people: cast.People
) -> None:
    remember("sky", "blue")
    remember("sea", "green")

    def change(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "grey", "facts")
        ctx.memory.delete("sea", "facts")
        ctx.memory.put("sun", "red", "facts")
        ctx.memory.delete("nothing", "facts")

    def again(state: Any, ctx: Any) -> None:
        ctx.memory.put("sea", "blue", "facts")
        ctx.memory.put("moon", "white", "facts")
        ctx.memory.delete("moon", "facts")
        ctx.memory.put("sky", "black", "facts")
        ctx.memory.delete("sky", "facts")

    run = gone(chain("changes", change, again))
    first = _memory(run.key, 1)
    second = _memory(run.key, 2)
    names = ("added", "updated", "removed")
    assert [first[name] for name in names] == [
        ["facts/sun"],
        ["facts/sky"],
        ["facts/sea"],
    ]
    assert [second[name] for name in names] == [["facts/sea"], [], ["facts/sky"]]
    html = (
        browse(people.auditor).get(f"/runs/{run.key}/?at=1&tab=memory").content.decode()
    )
    for text in (
        "added, version 1",
        "updated, version 2",
        "removed, version 2",
        "facts/sun",
    ):
        assert text in html
    assert (
        "Nothing landed"
        in browse(people.auditor)
        .get(f"/runs/{run.key}/?at=0&tab=memory")
        .content.decode()
    )
    assert verify_run(run.id) == []
    MemoryLanding.objects.filter(run=run.id, key="sun").update(change="updated")
    assert "gone" in verify_run(run.id)[0].reason


def test_what_lands_with_a_settlement_is_shown_with_its_checkpoint(
    browse: Any, people: cast.People
) -> None:
    rita: User = run_actions.reviewer(people.reviewer)

    def propose(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")
        ctx.memory.put("sky", "grey", "facts")

    run = gone(
        chain("shown-settled", propose, options=[{"effect": "human", "gate": GATE}])
    )
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    at = {
        seq: memory_at(timeline.get_checkpoint(f"{run.key}:at-{seq}")) for seq in (1, 2)
    }
    assert [len(at[1]["reads"]), at[1]["landed"]] == [1, []]
    assert at[2]["reads"] == []
    assert [landing["key"] for landing in at[2]["landed"]] == ["sky"]
    html = (
        browse(people.auditor).get(f"/runs/{run.key}/?at=1&tab=memory").content.decode()
    )
    assert "get facts/sky" in html
    assert '<span class="nil">nothing</span>' in html


def test_what_an_effect_read_is_kept_with_its_result_and_is_no_part_of_its_input() -> (
    None
):
    remember("sky", "blue")
    hashes: list[str] = []

    def pay(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")

    for colour in ("grey", "red"):
        run = runs.advance(
            runs.start(chain("pays", pay, options=[{"effect": "external"}]).name, {}).id
        )
        row = TaskResult.objects.get(run=run)
        hashes.append(row.input_hash)
        (read,) = read_value(row, "output")["reads"]
        assert read["asked"] == ["get", "facts", "sky"]
        assert read["mode"] == "live"
        remember("sky", colour)
    assert len(set(hashes)) == 1


@pytest.mark.parametrize("mode", ["live", "snapshot"])
def test_what_an_erased_run_read_is_told_as_erased(
    mode: str, browse: Any, people: cast.People
) -> None:
    remember("sky", "blue")

    def read(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")
        ctx.memory.search("blue", "facts")

    run = gone(chain(f"erased-{mode}", read, memory=mode))
    retention.erase(run.id, by=people.steward)
    memory = memory_at(timeline.get_checkpoint(f"{run.key}:at-1"))
    assert memory is not None
    assert [(read["asked"], read["traces"]) for read in memory["reads"]] == [
        ([], [])
    ] * 2
    page = browse(people.auditor).get(f"/runs/{run.key}/?at=1&tab=memory")
    assert page.status_code == 200
    assert page.content.decode().count('<span class="nil">erased</span>') == 2


def test_a_run_verifies_in_whatever_order_it_names_what_it_remembers() -> None:
    run = remember("ann", {"wanted": "green tea", "before": {"z": 1, "a": "black tea"}})
    assert verify_run(run.id) == []
    assert (
        MemoryTrace.objects.get(key="ann").text
        == "ann before a black tea z 1 wanted green tea"
    )


@pytest.mark.parametrize("mode", ["live", "snapshot", "journaled"])
def test_verifying_a_run_covers_what_its_tasks_read(mode: str) -> None:
    remember("sky", "blue")

    def read(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")
        ctx.memory.put("sea", "green", "facts")

    run = gone(chain("verified", read, memory=mode))
    assert verify_run(run.id) == []
    MemoryRecord.objects.filter(run=run, kind="get").update(kind="search")
    (fault,) = verify_run(run.id)
    assert fault.table == "checkpoints_memoryrecord"
