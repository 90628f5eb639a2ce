"""Keys in the settings: which are refused, by which name, and what is said where one is
missing.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client as Browser
from django.urls import reverse

from approvals.models import ApprovalRequest
from checkpoints.conf import keyring
from checkpoints.core.keyring import DATA_KEY, ENCRYPTED, key_of
from checkpoints.core.status import Status
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator import checks, environment, runs
from orchestrator.engine import registry
from orchestrator.engine.errors import TamperedRow, WrongKey
from orchestrator.management import command_line
from tests.support import cast
from tests.support import sealed_graphs as graphs
from tests.support.api_people import Client
from tests.support.processes import calls
from tests.support.run_actions import pending, reviewer, sign

pytestmark = pytest.mark.django_db(transaction=True)
A = b"a" * 32
B = b"b" * 32


@pytest.fixture
def keys(settings: Any) -> Any:
    """`keys(ENCRYPTION_KEYS={...})` puts other keys into the settings."""

    def put(**options: Any) -> None:
        others = {
            name: value
            for name, value in settings.COUNTERSIGN.items()
            if not name.endswith("_KEYS")
        }
        settings.COUNTERSIGN = {**others, **options}

    return put


@pytest.fixture
def rita(people: cast.People) -> User:
    return reviewer(people.reviewer)


# --- what can be a key ---


@pytest.mark.parametrize("setting", ["SIGNING_KEYS", "ENCRYPTION_KEYS"])
@pytest.mark.parametrize(
    ("key", "content"),
    [
        (b"short", "must be 32 bytes, not 5 bytes"),
        (b"l" * 33, "must be 32 bytes, not 33 bytes"),
        (base64.b64encode(b"short").decode(), "must be 32 bytes, not 5 bytes"),
        ("not base64 !", "is not base64"),
        (base64.b64encode(A).decode()[:-2], "is not base64"),
        (7, "must be 32 bytes, not int"),
    ],
)
def test_what_cannot_be_a_key_is_refused_naming_the_setting_and_never_the_key(
    setting: str, key: Any, content: str, keys: Any
) -> None:
    keys(**{setting: {"k1": key}})
    with pytest.raises(
        ImproperlyConfigured, match=rf"COUNTERSIGN\['{setting}'\]\['k1'\] {content}"
    ) as refused:
        keyring()
    assert not isinstance(key, str) or key not in str(refused.value)
    assert [error.id for error in checks.check_settings(None)] == ["orchestrator.E001"]


@pytest.mark.parametrize("name", ["", "k" * 41, "schlüssel", 7])
def test_an_id_of_a_key_is_1_to_40_ascii_characters(name: Any, keys: Any) -> None:
    keys(ENCRYPTION_KEYS={name: A})
    with pytest.raises(ImproperlyConfigured, match="1 to 40 ASCII"):
        keyring()


def test_a_date_that_cannot_be_read_is_refused(keys: Any) -> None:
    keys(COMPROMISED_KEYS={"k1": "last week"})
    with pytest.raises(ImproperlyConfigured, match="must be a date"):
        keyring()


def test_the_last_key_makes_and_all_of_them_open(keys: Any) -> None:
    row = Run(id=UUID(int=1))
    keys(ENCRYPTION_KEYS={"old": base64.b64encode(A).decode()})
    ciphertext = sealed_rows.encrypted(
        row, "input", b"plain", Protection(encrypted=True)
    )
    keys(ENCRYPTION_KEYS={"old": A, "new": B})
    assert (
        key_of(
            sealed_rows.encrypted(row, "input", b"plain", Protection(encrypted=True))
        )
        == "new"
    )
    assert sealed_rows.decrypted(row, "input", ciphertext) == b"plain"


@pytest.mark.parametrize(
    ("ring", "content"),
    [
        ({}, "input of checkpoints_run .* encryption key 'old' is not configured"),
        ({"old": B}, "encryption key 'old' is not the one that made this"),
    ],
)
def test_a_missing_key_and_another_one_under_its_id_are_told_by_name(
    ring: dict[str, bytes], content: str, keys: Any
) -> None:
    row = Run(id=UUID(int=1))
    keys(ENCRYPTION_KEYS={"old": A})
    ciphertext = sealed_rows.encrypted(
        row, "input", b"plain", Protection(encrypted=True)
    )
    keys(ENCRYPTION_KEYS=ring)
    with pytest.raises(WrongKey, match=content):
        sealed_rows.decrypted(row, "input", ciphertext)


@pytest.mark.parametrize("cut", [1, 3, 5, 20, -1])
def test_what_was_cut_off_is_tampered_with_wherever_it_was_cut(
    cut: int, keys: Any
) -> None:
    row = Run(id=UUID(int=1))
    keys(ENCRYPTION_KEYS={"old": A})
    ciphertext = sealed_rows.encrypted(
        row, "input", b"plain", Protection(encrypted=True)
    )
    with pytest.raises(TamperedRow, match="input of checkpoints_run"):
        sealed_rows.decrypted(row, "input", ciphertext[:cut])


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (Run(id=UUID(int=2)), "input"),
        (Run(id=UUID(int=1)), "error"),
        (ApprovalRequest(run_id=UUID(int=1), id=UUID(int=1)), "title"),
    ],
    ids=["another run", "another column", "another table"],
)
def test_encrypted_bytes_open_in_their_own_place_only(
    row: Any, column: str, keys: Any
) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    ciphertext = sealed_rows.encrypted(
        Run(id=UUID(int=1)), "input", b"plain", Protection(encrypted=True)
    )
    with pytest.raises(TamperedRow, match=f"{column} of .* was changed, or moved here"):
        sealed_rows.decrypted(row, column, ciphertext)


def test_the_same_value_is_never_encrypted_to_the_same_bytes(keys: Any) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    row = Run(id=UUID(int=1))
    assert (
        len(
            {
                sealed_rows.encrypted(
                    row, "input", b"plain", Protection(encrypted=True)
                )
                for _ in range(50)
            }
        )
        == 50
    )


@pytest.mark.parametrize(
    ("ring", "code", "content"),
    [
        ({"k1": base64.b64encode(A).decode()}, 0, "no issues"),
        (
            {"k1": "c2hvcnQ="},
            1,
            "COUNTERSIGN_ENCRYPTION_KEYS['k1'] must be 32 bytes, not 5 bytes",
        ),
        ({"k1": "no base64!"}, 1, "COUNTERSIGN_ENCRYPTION_KEYS['k1'] is not base64"),
        (["k1"], 1, "COUNTERSIGN_ENCRYPTION_KEYS must be a JSON object"),
    ],
)
def test_a_key_of_the_environment_that_cannot_be_one_ends_every_command_with_one_sentence(
    ring: Any, code: int, content: str, tmp_path: Path
) -> None:
    mode = {"COUNTERSIGN_DEMO": "true", "COUNTERSIGN_DATA_DIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env={**os.environ, **mode, "COUNTERSIGN_ENCRYPTION_KEYS": json.dumps(ring)},
        cwd=environment.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    output = process.stdout + process.stderr
    assert process.returncode == code, output
    assert content in output, output
    assert "Traceback" not in output, output


# --- graphs and runs ---


def test_without_a_key_a_run_of_an_encrypted_graph_does_not_start_and_a_check_says_so(
    keys: Any,
) -> None:
    keys()
    registry.replace(graphs.graph(encrypted=True))
    with pytest.raises(WrongKey, match=r"COUNTERSIGN\['ENCRYPTION_KEYS'\]"):
        runs.start("watched", {})
    assert not Run.objects.exists()
    (error,) = checks.check_encryption(None)
    assert error.id == "orchestrator.E005"
    assert error.msg == "graph watched is encrypted, and there is no encryption key"
    keys(ENCRYPTION_KEYS={"k1": A})
    assert checks.check_encryption(None) == []


def test_the_start_page_and_the_api_say_that_there_is_no_key(
    keys: Any, people: cast.People
) -> None:
    keys()
    registry.replace(graphs.graph(encrypted=True))
    browser = Browser()
    browser.force_login(people.starter)
    answer = browser.post(
        reverse("start", args=["watched"]), {"mode": "json", "json": "{}"}
    )
    assert answer.status_code == 409
    assert "there is no encryption key" in answer.content.decode()
    answered = Client(people.starter).post("runs/", {"graph": "watched", "input": {}})
    assert answered.status_code == 409
    assert answered.json()["code"] == "wrong_key"


def test_a_run_keeps_the_key_of_its_hashes_when_a_newer_one_comes(
    keys: Any, tmp_path: Path, rita: User
) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    run = graphs.started(tmp_path, encrypted=True)
    keys(ENCRYPTION_KEYS={"old": A, "new": B})
    assert (
        runs.start("watched", {"folder": str(tmp_path)}, key=run.key + "x").hash_key
        == "new"
    )
    sign(run, rita, [("edit", {"amount": "9"}), "approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run.hash_key == "old"
    kept = {key_of(bytes(row.value)) for row in PendingWrite.objects.filter(run=run)}
    assert kept == {f"{DATA_KEY}{run.id.hex}"}, "its own key, whatever came to the ring"


def test_a_worker_without_the_key_stops_the_run_by_name_touches_nothing_and_goes_on_when_it_is_back(
    keys: Any, tmp_path: Path, rita: User
) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    run = graphs.started(tmp_path, encrypted=True)
    sign(run, rita, ["approve", "approve"])
    sealed = Run.objects.values_list("event_seq", "head", "seal").get(id=run.id)
    keys()
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "wrong_key"
    assert Run.objects.values_list("event_seq", "head", "seal").get(id=run.id) == sealed
    assert calls(tmp_path) == []
    keys(ENCRYPTION_KEYS={"old": A})
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert len(calls(tmp_path)) == 1


def test_a_signing_key_that_is_gone_is_named_and_nothing_is_signed(
    keys: Any, tmp_path: Path, rita: User
) -> None:
    keys(SIGNING_KEYS={"s1": A})
    run = graphs.started(tmp_path)
    keys(SIGNING_KEYS={"s2": B})
    with pytest.raises(WrongKey, match="signing key 's1' is not configured"):
        sign(run, rita, ["approve", "approve"])
    assert Run.objects.get(id=run.id).status == Status.PAUSED
    keys(SIGNING_KEYS={"s1": A, "s2": B})
    sign(run, rita, ["approve", "approve"])
    assert runs.advance(run.id).status == Status.COMPLETED


@pytest.mark.parametrize(
    ("since", "status"),
    [("2000-01-01", Status.TAMPERED), ("2999-01-01", Status.COMPLETED)],
)
def test_what_a_compromised_key_sealed_from_that_date_on_is_refused(
    since: str, status: str, keys: Any, tmp_path: Path, rita: User
) -> None:
    keys(SIGNING_KEYS={"s1": A})
    run = graphs.started(tmp_path)
    sign(run, rita, ["approve", "approve"])
    keys(SIGNING_KEYS={"s1": A, "s2": B}, COMPROMISED_KEYS={"s1": since})
    assert runs.advance(run.id).status == status
    assert bool(calls(tmp_path)) == (status == Status.COMPLETED)


# --- pages and API ---

MISSING = "cannot be opened: key &#x27;old&#x27; is not configured"


def _pages(run: Run) -> list[tuple[str, int]]:
    tabs = [
        (reverse("run", args=[run.id]) + f"?tab={tab}", 200)
        for tab in ("changed", "state", "writes", "results")
    ]
    tabs.append((reverse("run", args=[run.id]) + "?tab=events", 200))
    return [*tabs, (reverse("inbox"), 200), (reverse("review", args=[run.id]), 409)]


def test_where_a_key_is_missing_pages_say_which_and_none_breaks(
    keys: Any, tmp_path: Path, rita: User, people: cast.People
) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    run = graphs.started(tmp_path, encrypted=True)
    people.auditor.groups.add(*rita.groups.all())
    browser = Browser()
    browser.force_login(people.auditor)
    keys()
    for address, status in _pages(run):
        answer = browser.get(address)
        assert answer.status_code == status, address
        assert MISSING in answer.content.decode(), address
    assert browser.get(reverse("runs")).status_code == 200
    row = pending(run)[0]
    signed = {"key": "x", f"v-{row.write}": "approve", f"h-{row.write}": row.hash}
    browser.force_login(rita)
    assert browser.post(reverse("sign", args=[run.id]), signed).status_code == 409


def test_the_page_of_a_run_that_stopped_for_a_missing_key_says_what_to_do(
    keys: Any, tmp_path: Path, rita: User, people: cast.People
) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    run = graphs.started(tmp_path, encrypted=True)
    sign(run, rita, ["approve", "approve"])
    keys()
    runs.advance(run.id)
    browser = Browser()
    browser.force_login(people.auditor)
    html = browser.get(reverse("run", args=[run.id])).content.decode()
    assert "A key is missing" in html
    assert "Put the key back into the settings" in html
    assert (
        command_line.as_dict(Run.objects.get(id=run.id))["error"]["code"] == "wrong_key"
    )


def test_where_a_key_is_missing_the_api_names_the_row(
    keys: Any, tmp_path: Path, rita: User
) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    run = graphs.started(tmp_path, encrypted=True)
    keys()
    api = Client(rita)
    (listed,) = api.get("requests/", run=str(run.id)).json()["results"]
    assert listed["title"] == "cannot be opened: key 'old' is not configured"
    for path in (
        f"requests/{listed['id']}/",
        f"runs/{run.id}/",
        f"checkpoints/{run.key}:initial/",
    ):
        answer = api.get(path)
        assert answer.status_code == 409, path
        assert answer.json()["code"] == "wrong_key", path
        assert answer.json()["key"] == "old"


def test_encrypted_bytes_are_told_by_their_first_byte_and_name_their_key(
    keys: Any, tmp_path: Path
) -> None:
    keys(ENCRYPTION_KEYS={"old": A})
    run = graphs.started(tmp_path, encrypted=True)
    stored_bytes = bytes(Run.objects.get(id=run.id).input)
    assert stored_bytes[:1] == ENCRYPTED
    assert key_of(stored_bytes) == f"{DATA_KEY}{run.id.hex}"
