"""One checkpoint over the API: what it holds, its state, and what differs."""

import pytest

from checkpoints.models import Run
from tests.support.api_people import Client


def test_a_checkpoint_answers_everything_that_is_kept_of_it(
    olive: Client, paused: Run
) -> None:
    body = olive.get("checkpoints/CLM-1:step-2/").json()
    assert body["run"] == str(paused.id)
    assert body["superstep"] == 2
    assert body["line"] == 1
    assert body["source"] == "superstep"
    assert "CLM-1:step-2" in body["aliases"]
    assert body["state"]["input"]["claim_id"] == "CLM-1"
    assert body["state"]["scratch"] == {
        "notes": ["claim CLM-1"],
        "payout": {},
        "letter": "",
    }
    assert [
        (w["task"], w["position"], w["channel"], w["revision"])
        for w in body["pending_writes"]
    ] == [
        ("propose:1:0", 0, "payout", 1),
        ("propose:1:0", 1, "letter", 1),
        ("propose:1:0", 2, "notes", 1),
    ]
    assert body["pending_writes"][2]["base"] == ["claim CLM-1"]
    assert body["visited"] == ["fetch", "propose"]
    assert body["paused"] == ["propose:1"]
    assert body["pending_edges"] == {}
    assert body["skipped"] == []
    assert body["memory"] is None
    assert body["channel_versions"]["notes"] == 1
    assert body["committed"] is True
    assert set(body["hashes"]) == {"change", "content", "snapshot", "event"}


def test_the_first_checkpoint_is_before_any_work(olive: Client, paused: Run) -> None:
    body = olive.get("checkpoints/CLM-1:initial/").json()
    assert body["seq"] == 0
    assert body["superstep"] == 0
    assert body["source"] == "input"
    assert body["parent"] is None
    assert body["visited"] == []
    assert body["pending_writes"] == []
    assert body["pending_edges"] == {"START>fetch": 1}


def test_the_state_is_that_of_the_checkpoint_not_of_the_run(
    olive: Client, paused: Run
) -> None:
    assert (
        olive.get("checkpoints/CLM-1:initial/state/").json()["scratch"]["notes"] == []
    )
    assert olive.get("checkpoints/CLM-1:step-1/state/").json()["scratch"]["notes"] == [
        "claim CLM-1"
    ]


def test_the_diff_is_against_the_parent_or_against_any_other(
    olive: Client, paused: Run
) -> None:
    def scratch(answer: dict[str, object]) -> list[tuple[object, ...]]:
        changes = answer["changes"]
        assert isinstance(changes, list)
        return [
            (c["path"], c["kind"], c["after"], c["set_by"])
            for c in changes
            if c["partition"] == "scratch"
        ]

    step = olive.get("checkpoints/CLM-1:step-1/diff/").json()
    assert scratch(step) == [("notes[0]", "added", "claim CLM-1", "fetch")]
    assert scratch(olive.get("checkpoints/CLM-1:step-2/diff/").json()) == []
    far = olive.get("checkpoints/CLM-1:step-2/diff/", against="CLM-1:initial").json()
    assert scratch(far) == scratch(step)
    assert (
        olive.get("checkpoints/CLM-1:step-2/diff/", against="CLM-1:at-99").status_code
        == 404
    )


@pytest.mark.parametrize("part", ["", "state/", "diff/"])
def test_a_checkpoint_of_a_run_that_one_may_not_see_does_not_exist(
    nobody: Client, olive: Client, paused: Run, part: str
) -> None:
    hidden = nobody.get(f"checkpoints/CLM-1:initial/{part}")
    missing = nobody.get(f"checkpoints/CLM-2:initial/{part}")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.json()["detail"] == missing.json()["detail"].replace("CLM-2", "CLM-1")
    assert olive.get(f"checkpoints/CLM-1:initial/{part}").status_code == 200


def test_a_checkpoint_that_one_may_see_is_no_way_to_one_that_one_may_not(
    people: object, rita: Client, paused: Run
) -> None:
    from tests.support.rows import a_checkpoint, a_run

    hidden = a_checkpoint(a_run(), 0)
    assert (
        rita.get("checkpoints/CLM-1:initial/diff/", against=str(hidden.id)).status_code
        == 404
    )
