"""Keys that seal: derived from the secret key, rotated, missing, compromised."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from checkpoints.conf import keyring
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast, run_actions

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)


def _set(configure: Any, **values: Any) -> None:
    configure(**values)


def test_seals_of_a_former_secret_key_verify_while_it_is_a_fallback(
    tmp_path: Path, settings: Any
) -> None:
    run = run_actions.start("effects", tmp_path)
    former = settings.SECRET_KEY
    settings.SECRET_KEY = "another secret key"
    settings.SECRET_KEY_FALLBACKS = [former]
    assert verify_run(run.id) == []
    later = run_actions.start("effects", tmp_path)
    assert verify_run(later.id) == []
    keys = {
        RunEvent.objects.filter(run=each_run)
        .values_list("seal_key", flat=True)
        .distinct()
        .get()
        for each_run in (run, later)
    }
    assert len(keys) == 2
    assert all(key.startswith("derived-") for key in keys)


def test_without_the_fallback_the_key_is_missing_by_name_and_nothing_is_called_tampered(
    tmp_path: Path, settings: Any
) -> None:
    run = run_actions.start("gated", tmp_path)
    key = Run.objects.get(id=run.id).seal_key
    settings.SECRET_KEY = "another secret key"
    faults = verify_run(run.id)
    assert {fault.code for fault in faults} == {"wrong_key"}
    assert f"'{key}'" in faults[0].reason


def test_a_run_goes_on_under_a_new_secret_key_while_the_old_one_is_a_fallback(
    tmp_path: Path, settings: Any, people: cast.People
) -> None:
    run = run_actions.start("gated", tmp_path)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = (
        "another secret key",
        [settings.SECRET_KEY],
    )
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert verify_run(run.id) == []


def test_a_signing_key_that_was_added_seals_and_the_older_ones_still_verify(
    tmp_path: Path, configure: Any
) -> None:
    first = run_actions.start("effects", tmp_path)
    _set(configure, SIGNING_KEYS={"one": b"1" * 32})
    second = run_actions.start("effects", tmp_path)
    _set(configure, SIGNING_KEYS={"one": b"1" * 32, "two": b"2" * 32})
    third = run_actions.start("effects", tmp_path)
    assert [Run.objects.get(id=run.id).seal_key for run in (second, third)] == [
        "one",
        "two",
    ]
    assert [verify_run(run.id) for run in (first, second, third)] == [[], [], []]
    _set(configure, SIGNING_KEYS={"two": b"2" * 32})
    assert verify_run(second.id)[0].code == "wrong_key"


def test_another_key_under_the_same_id_does_not_verify(
    tmp_path: Path, configure: Any
) -> None:
    _set(configure, SIGNING_KEYS={"one": b"1" * 32})
    run = run_actions.start("effects", tmp_path)
    _set(configure, SIGNING_KEYS={"one": b"9" * 32})
    assert verify_run(run.id)[0].table == "checkpoints_run"


def test_what_a_compromised_key_sealed_before_its_date_is_accepted(
    tmp_path: Path, configure: Any
) -> None:
    _set(configure, SIGNING_KEYS={"one": b"1" * 32})
    run = run_actions.start("effects", tmp_path)
    _set(configure, COMPROMISED_KEYS={"one": (datetime.now(UTC) + DAY).isoformat()})
    assert verify_run(run.id) == []


def test_what_a_compromised_key_sealed_from_its_date_on_is_refused_by_name(
    tmp_path: Path, configure: Any
) -> None:
    _set(configure, SIGNING_KEYS={"one": b"1" * 32})
    run = run_actions.start("effects", tmp_path)
    since = Checkpoint.objects.get(run=run, seq=2).created_at
    _set(
        configure,
        COMPROMISED_KEYS={"one": since},
        SIGNING_KEYS={"one": b"1" * 32, "two": b"2" * 32},
    )
    faults = verify_run(run.id)
    named = {fault.what for fault in faults if fault.table == "checkpoints_checkpoint"}
    late = Checkpoint.objects.filter(run=run, created_at__gte=since)
    assert named == {f"checkpoints_checkpoint {run.id} {row.id}" for row in late}
    assert (
        f"sealed with key one, compromised since {since.isoformat()}"
        in faults[0].reason
    )
    assert {fault.code for fault in faults} == {"tampered_row"}


def test_a_compromised_key_seals_nothing_any_more_even_where_it_is_the_newest(
    tmp_path: Path, configure: Any
) -> None:
    _set(
        configure,
        SIGNING_KEYS={"one": b"1" * 32, "two": b"2" * 32},
        COMPROMISED_KEYS={"two": "2020-01-01"},
    )
    run = run_actions.start("effects", tmp_path)
    assert run.status == Status.COMPLETED
    assert run.seal_key == "one"
    assert verify_run(run.id) == []
    _set(
        configure,
        COMPROMISED_KEYS={"one": "2999-01-01"},
        SIGNING_KEYS={"one": b"1" * 32},
    )
    run = run_actions.start("effects", tmp_path)
    assert run.seal_key.startswith("derived-")


def test_a_worker_refuses_what_a_compromised_key_sealed(
    tmp_path: Path, configure: Any, people: cast.People
) -> None:
    _set(configure, SIGNING_KEYS={"one": b"1" * 32})
    run = run_actions.start("gated", tmp_path)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    _set(
        configure,
        COMPROMISED_KEYS={"one": "2020-01-01"},
        SIGNING_KEYS={"one": b"1" * 32, "two": b"2" * 32},
    )
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert not (tmp_path / "outside.log").exists()


def test_the_workers_page_says_which_key_seals_and_that_it_is_derived(
    client: Client, people: cast.People, configure: Any
) -> None:
    client.force_login(people.steward)
    page = client.get(reverse("workers")).content.decode()
    assert (
        f"<code>{keyring().signer}</code>, derived from <code>SECRET_KEY</code>" in page
    )
    assert "No encryption key is configured." in page
    _set(configure, SIGNING_KEYS={"one": b"1" * 32}, ENCRYPTION_KEYS={"e": b"e" * 32})
    page = " ".join(client.get(reverse("workers")).content.decode().split())
    assert "sealed with key <code>one</code>." in page
    assert "encrypted under key <code>e</code>." in page
    assert "derived" not in page
