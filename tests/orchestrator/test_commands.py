"""What people type: start a run, see how it stands, resume it, make a token."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError
from django.test import override_settings
from django.utils import timezone

from checkpoints.ledger import notes
from checkpoints.models import Run, Upload
from orchestrator import runs, tokens
from orchestrator.management import command_line
from orchestrator.runs.unknown_outcomes import carried_keys
from tests.support import api_graphs as graphs
from tests.support.cast import People
from tests.support.command_output import call, call_json
from tests.support.rows import a_worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _graphs(tmp_path: Path) -> Iterator[None]:
    graphs.register()
    with override_settings(MEDIA_ROOT=tmp_path / "files"):
        yield


def test_a_run_is_started_from_a_file_and_from_single_fields(
    tmp_path: Path, people: People
) -> None:
    path = tmp_path / "claim.json"
    path.write_text('{"claim_id": "CLM-1", "amount": 5}')
    facts = call_json(
        "start_run",
        "gated",
        str(path),
        "--set",
        "amount=7",
        "--key",
        "A",
        "--by",
        people.starter.username,
    )
    run = Run.objects.get(key="A")
    assert facts["id"] == str(run.id)
    assert facts["status"] == "queued"
    assert run.started_by == people.starter
    assert runs.input_of(run) == {"claim_id": "CLM-1", "amount": 7, "evidence": None}


def test_starting_again_under_the_key_gives_the_same_run() -> None:
    first, second = (
        call_json("start_run", "gated", "--set", "claim_id=C", "--key", "A")
        for _ in range(2)
    )
    assert first["id"] == second["id"]
    with pytest.raises(CommandError, match=r"\[key_conflict\]"):
        call("start_run", "gated", "--set", "claim_id=D", "--key", "A")


def test_a_run_is_started_with_metadata_of_ones_own() -> None:
    options = (
        "--metadata",
        "customer=ACME",
        "--metadata",
        "tries=3",
        "--metadata",
        'code="007"',
    )
    run = call_json("start_run", "gated", "--set", "claim_id=C", *options)
    assert notes.metadata_of(Run.objects.get(id=run["id"])) == {
        "customer": "ACME",
        "tries": 3,
        "code": "007",
    }


@pytest.mark.parametrize(
    "metadata", [("a b=x",), ("customer=A", "customer=B"), ("customer",)]
)
def test_metadata_that_cannot_be_kept_starts_nothing(metadata: tuple[str, ...]) -> None:
    words = [word for text in metadata for word in ("--metadata", text)]
    with pytest.raises(CommandError):
        call("start_run", "gated", "--set", "claim_id=C", *words)
    assert not Run.objects.exists()


def test_a_file_is_copied_into_storage_and_named_by_reference(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n")
    facts = call_json(
        "start_run", "gated", "--set", "claim_id=C", "--file", f"evidence={path}"
    )
    evidence = runs.input_of(Run.objects.get(id=facts["id"]))["evidence"]
    assert evidence["name"] == "rows.csv"
    assert evidence["size"] == 4
    assert str(Upload.objects.get().id) == evidence["file"]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["unheard"], "there is no graph unheard"),
        (["gated"], "claim_id"),
        (["gated", "no/such/file.json"], "cannot read the input"),
        (["gated", "--set", "claim_id"], "NAME=VALUE"),
        (["gated", "--set", "claim_id={"], "begins like JSON"),
        (
            ["gated", "--set", "claim_id=C", "--file", "evidence=/no/such"],
            "cannot read /no/such",
        ),
        (
            ["gated", "--set", "claim_id=C", "--by", "stranger"],
            "no active user stranger",
        ),
        (["gated", "--set", "claim_id=C", "--set", "colour=red"], "no field colour"),
    ],
)
def test_what_cannot_be_started_fails_with_one_clear_line(
    args: list[str], line: str
) -> None:
    with pytest.raises(CommandError) as failed:
        call("start_run", *args)
    assert line in str(failed.value)
    assert "\n" not in str(failed.value)
    assert not Run.objects.exists()


def test_the_status_says_where_a_run_is_and_what_it_waits_for() -> None:
    run = runs.advance(runs.start("gated", {"claim_id": "C"}, key="A").id)
    text = call("run_status", "A")
    assert "paused" in text
    assert "Pay the claim?" in text
    facts = call_json("run_status", str(run.id))
    assert facts["status"] == "paused"
    assert facts["waiting"][0]["task"] == "propose:1:0"
    with pytest.raises(CommandError, match="there is no run"):
        call("run_status", "B")


def test_the_status_of_a_stopped_run_is_an_exit_code_and_resuming_queues_it() -> None:
    graphs.broken.add("fetch")
    runs.advance(runs.start("gated", {"claim_id": "C"}, key="A").id)
    with pytest.raises(SystemExit) as ended:
        call("run_status", "A")
    assert ended.value.code == 4
    assert call_json("resume_run", "A")["status"] == "queued"
    with pytest.raises(CommandError, match="wrong_status"):
        call("resume_run", "A")


def test_waiting_follows_a_run_until_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.management.commands import start_run

    # The worker of this test: it takes its turn while the command sleeps. (The command
    # alone: others sleep here too.)
    clock = SimpleNamespace(
        sleep=lambda _: runs.advance(Run.objects.get().id), monotonic=time.monotonic
    )
    monkeypatch.setattr(start_run, "time", clock)
    facts = call(
        "start_run", "gated", "--set", "claim_id=C", "--key", "A", "--wait"
    ).splitlines()
    assert facts[0] == "A  gated"
    assert facts[1] == "queued, superstep 0"
    assert facts[2] == "paused, superstep 2 at propose"
    assert "Pay the claim?" in facts[-1]


def test_settling_what_is_not_unknown_fails_with_one_clear_line(tmp_path: Path) -> None:
    runs.advance(runs.start("gated", {"claim_id": "C"}, key="A").id)
    with pytest.raises(CommandError, match="no unknown outcome"):
        call("settle_run", "A", "fetch:1:0", "--did-not", "--reason", "looked")
    with pytest.raises(CommandError, match="--output goes with --happened"):
        call(
            "settle_run",
            "A",
            "fetch:1:0",
            "--did-not",
            "--reason",
            "looked",
            "--output",
            str(tmp_path),
        )
    with pytest.raises(CommandError, match="one of the arguments"):
        call("settle_run", "A", "fetch:1:0", "--reason", "looked")


def test_run_status_lists_what_is_unknown_with_the_key_of_its_call() -> None:
    graphs.broken.add("pay")
    run = runs.advance(runs.start("paying", {"claim_id": "C", "amount": 7}, key="P").id)
    ((_, key),) = carried_keys(run)
    assert (
        f"may have happened: pay:1:0, whose call carried {key}"
        in command_line.as_text(run)
    )
    assert command_line.as_dict(run)["unknown"] == [
        {"task": "pay:1:0", "attempt": 1, "idempotency_key": key}
    ]


def test_an_unknown_outcome_is_settled_with_the_output_of_a_file(
    tmp_path: Path,
) -> None:
    graphs.broken.add("pay")
    run = runs.advance(runs.start("paying", {"claim_id": "C", "amount": 7}, key="P").id)
    assert run.status == "unknown"
    output = tmp_path / "output.json"
    output.write_text('{"payout": {"amount": 7}}')
    facts = call_json(
        "settle_run",
        "P",
        "pay:1:0",
        "--happened",
        "--output",
        str(output),
        "--reason",
        "the bank says so",
    )
    assert facts["status"] == "queued"
    assert runs.advance(run.id).status == "completed"


def test_a_token_is_printed_once_and_has_the_scopes_that_were_asked_for(
    people: People,
) -> None:
    text = call(
        "create_token",
        people.starter.username,
        "--scopes",
        "read",
        "start",
        "--name",
        "import",
    ).strip()
    token = tokens.find_token(text)
    assert token is not None
    assert token.user == people.starter
    assert token.scopes == ["start", "read"]
    assert token.name == "import"
    assert call_json(
        "create_token", people.starter.username, "--scopes", "read,decide"
    )["token"].startswith("cst_")
    for args in (
        ["stranger"],
        [people.starter.username, "--scopes", "all"],
        [people.starter.username, "--days", "0"],
    ):
        with pytest.raises(CommandError):
            call("create_token", *args)


def test_a_run_is_cancelled_by_its_key_with_a_reason(people: People) -> None:
    runs.advance(runs.start("gated", {"claim_id": "C"}, key="A").id)
    facts = call_json(
        "cancel_run", "A", "--reason", "withdrawn", "--by", people.starter.username
    )
    assert facts["status"] == "cancelled"
    assert facts["waiting"] == []
    assert "cancelled" in call("cancel_run", "A")
    with pytest.raises(CommandError, match="there is no run"):
        call("cancel_run", "B")


def test_a_run_is_started_with_a_priority_and_for_later() -> None:
    call(
        "start_run",
        "gated",
        "--set",
        "claim_id=C",
        "--key",
        "A",
        "--priority",
        "5",
        "--in",
        "3600",
    )
    run = Run.objects.get(key="A")
    assert run.priority == 5
    assert (run.due_at - run.created_at).total_seconds() == pytest.approx(3600, abs=5)
    with pytest.raises(CommandError, match="priority is a whole number"):
        call("start_run", "gated", "--set", "claim_id=C", "--priority", "5000")


def test_nothing_that_a_run_brings_reaches_the_terminal_unseen() -> None:
    runs.advance(runs.start("gated", {"claim_id": "C"}, key="A\x1b[2J\u202e").id)
    assert "A⟨U+001B⟩[2J⟨U+202E⟩" in call("run_status", "A\x1b[2J\u202e")


def test_draining_a_host_that_never_had_a_worker_names_those_that_had_one() -> None:
    a_worker(host="east", stopped_at=timezone.now())
    with pytest.raises(
        CommandError, match="no worker was on a host “esat”; those that had one: east"
    ):
        call("drain", "--host", "esat")
    assert "No worker is running." in call("drain", "--host", "east")
