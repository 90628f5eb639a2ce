"""Bundles and receipts from the command line."""

import contextlib
import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from approvals.exported_receipt import PAYLOAD_TYPE
from approvals.models import Decision
from checkpoints import bundle
from checkpoints.bundle import verifier
from checkpoints.models import Run
from tests.support import cast
from tests.support.bundles import forgotten, signed_run
from tests.support.dsse import opened
from tests.support.forging import tamper

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(tmp_path: Path, people: cast.People) -> Run:
    return signed_run(tmp_path, people)


def _call(name: str, *args: Any) -> str:
    out = io.StringIO()
    call_command(name, *map(str, args), stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_a_run_is_exported_verified_and_taken_in_again(
    run: Run, tmp_path: Path, people: cast.People
) -> None:
    file = tmp_path / "run.jsonl"
    facts = json.loads(
        _call(
            "export_run", run.key, file, "--json", "--by", people.auditor.get_username()
        )
    )
    assert facts["run"] == str(run.id)
    assert facts["bytes"] == file.stat().st_size
    assert _call("verify_bundle", file) == "ok\n"
    key = _call("verify_bundle", "--own-key").strip()
    assert key == bundle.public_key().hex()
    assert (
        json.loads(_call("verify_bundle", file, "--key", key, "--json"))["ok"] is True
    )
    forgotten(run)
    document = json.loads(_call("import_run", file, "--json"))
    assert document["id"] == str(run.id)
    assert document["status"] == "completed"


def test_a_bundle_is_verified_by_a_key_that_is_named_whatever_the_settings_hold(
    run: Run, tmp_path: Path, configure: Any
) -> None:
    file = _exported(run, tmp_path)
    key = bundle.public_key().hex()
    configure(TRUSTED_KEYS={"them": "no key"})
    assert _call("verify_bundle", file, "--key", key) == "ok\n"
    with pytest.raises(ImproperlyConfigured):
        _call("verify_bundle", file)


def test_commands_refuse_in_one_clear_line(
    run: Run, tmp_path: Path, people: cast.People
) -> None:
    file = tmp_path / "run.jsonl"
    with pytest.raises(CommandError, match="export_run"):
        _call("export_run", run.key, file, "--by", people.starter.get_username())
    with pytest.raises(CommandError, match="there is no run"):
        _call("export_run", "nothing", file)
    with pytest.raises(CommandError, match="cannot write"):
        _call("export_run", run.key, tmp_path / "no" / "such" / "folder")
    _call("export_run", run.key, file)
    with pytest.raises(CommandError, match="import_run"):
        _call("import_run", file, "--by", people.auditor.get_username())
    with pytest.raises(CommandError, match="is here already"):
        _call("import_run", file)
    with pytest.raises(CommandError, match="cannot read"):
        _call("import_run", tmp_path / "none")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CommandError, match=r"line \d+: truncated"):
        _call("verify_bundle", file)
    with pytest.raises(CommandError, match="another key"):
        _call("verify_bundle", _exported(run, tmp_path), "--key", "11" * 32)
    with pytest.raises(CommandError, match="anybody can sign"):
        _call("verify_bundle", _exported(run, tmp_path), "--key", "00" * 32)
    with pytest.raises(CommandError, match="name the bundle"):
        _call("verify_bundle")


def test_who_may_export_but_not_see_a_run_is_told_that_there_is_none(
    run: Run, tmp_path: Path, people: cast.People
) -> None:
    people.nobody.user_permissions.add(Permission.objects.get(codename="export_run"))
    with pytest.raises(CommandError, match="there is no run"):
        _call(
            "export_run", run.key, tmp_path / "a", "--by", people.nobody.get_username()
        )
    assert not (tmp_path / "a").exists()


def _exported(run: Run, folder: Path) -> Path:
    bundle.export(run.id, folder / "again.jsonl")
    return folder / "again.jsonl"


@pytest.mark.parametrize("key", ["zz", "9f", "9f" * 33, ""])
def test_a_key_that_is_none_is_said_to_be_none(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.jsonl").write_text("{}")
    with pytest.raises(CommandError, match="64 hexadecimal digits"):
        call_command("verify_bundle", str(tmp_path / "b.jsonl"), f"--key={key}")
    with contextlib.suppress(SystemExit):
        assert verifier.main([str(tmp_path / "b.jsonl"), f"--key={key}"]) == 1
    printed = capsys.readouterr()
    assert (
        "64_HEXADECIMAL_DIGITS" in printed.err
        or printed.out == "the public key must be 32 bytes\n"
    )


def test_a_file_that_is_not_there_is_not_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verifier.main([str(tmp_path / "no.jsonl"), "--key", "9f" * 32]) == 1
    assert capsys.readouterr().out.startswith("it cannot be read: ")


def test_a_tampered_run_is_exported_only_as_it_is(run: Run, tmp_path: Path) -> None:
    tamper(run, label="another")
    with pytest.raises(CommandError, match="does not verify"):
        _call("export_run", run.key, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert "as it is" in _call("export_run", run.key, tmp_path / "a", "--as-is")


def test_a_receipt_is_written_to_a_file(run: Run, tmp_path: Path) -> None:
    decision = Decision.objects.filter(run=run.id).first()
    assert decision is not None
    _call("export_receipt", decision.id, tmp_path / "receipt.json")
    assert stat.S_IMODE((tmp_path / "receipt.json").stat().st_mode) == 0o600
    document = opened(
        (tmp_path / "receipt.json").read_bytes(), PAYLOAD_TYPE, bundle.public_key()
    )
    assert document["decision"]["id"] == str(decision.id)
    with pytest.raises(CommandError, match="there is no decision"):
        _call("export_receipt", run.id, tmp_path / "no.json")
