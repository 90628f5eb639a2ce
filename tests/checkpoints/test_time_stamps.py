"""The head of the audit log is stamped by an authority outside, and a token that does not
prove the line that it names is reported.
"""

import base64
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints import time_stamps
from checkpoints.audit import chain
from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine, Job
from checkpoints.queue import jobs
from checkpoints.verification.audit import audit
from orchestrator import checks
from orchestrator.jobs import kinds
from tests.support import forging
from tests.support.audit_checks import all_reasons
from tests.support.cast import People
from tests.support.stamp_authority import (
    StampAuthority,
    new_authority,
    served,
    write_root,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def authority(configure: Any, tmp_path: Path) -> Iterator[StampAuthority]:
    """An authority that the settings name."""
    with served(new_authority()) as made:
        roots = str(write_root(made, tmp_path))
        configure(TIME_STAMP_URL=made.url, TIME_STAMP_ROOTS=roots)
        yield made


def _turn(kind: str = "stamp_audit_log") -> Job:
    Job.objects.filter(kind=kind).update(due_at=timezone.now() - timedelta(minutes=1))
    return kinds.advance(jobs.add_job(kind, name=kind))


def _chained(count: int = 3) -> None:
    for number in range(count):
        audit_log.record("refused", actor=None, n=number)
    chain.chain_lines()


def _stamps() -> list[AuditLine]:
    return list(AuditLine.objects.filter(kind=time_stamps.KIND).order_by("id"))


def _a_day_later() -> None:
    """Let the newest stamp be a day old."""
    (*_, newest) = _stamps()
    forging.reseal(newest, at=newest.at - time_stamps.EVERY)


def test_a_head_is_stamped_and_its_token_proves_it(authority: StampAuthority) -> None:
    _chained()
    head = chain.chain_head()
    job = _turn()
    assert job.status != "failed", job.error
    (line,) = _stamps()
    stamp = time_stamps.stamp_of(line)
    assert stamp is not None
    assert stamp.head == head
    assert line.facts["authority"] == "127.0.0.1"
    stated = datetime.fromisoformat(line.facts["at"])
    assert abs(stated - datetime.now(UTC)) < timedelta(minutes=5)
    assert time_stamps.fault_of_token(stamp.token, head.hash) == ""
    assert time_stamps.fault_of_token(stamp.token, "0" * 64) != ""
    chain.chain_lines()
    assert all_reasons() == []


def test_without_an_authority_or_lines_nothing_is_stamped(
    authority: StampAuthority, configure: Any
) -> None:
    _turn()
    assert authority.queries == []
    _chained()
    configure(TIME_STAMP_URL="")
    _turn()
    assert authority.queries == []
    assert _stamps() == []


def test_a_head_is_stamped_once_a_day_and_only_if_the_log_went_on(
    authority: StampAuthority,
) -> None:
    _chained()
    _turn()
    _chained()
    _turn()
    assert len(_stamps()) == 1
    _a_day_later()
    _turn()
    assert len(_stamps()) == 2
    chain.chain_lines()
    _a_day_later()
    # All that came since is the line of the last stamp.
    _turn()
    assert len(_stamps()) == 2


def _nonsense(authority: StampAuthority, query: bytes) -> bytes:
    return b"no token"


def _of_another_root(authority: StampAuthority, query: bytes) -> bytes:
    return new_authority().stamp(query)


def _replayed(authority: StampAuthority, query: bytes) -> bytes:
    """An honest answer to the same head, asked before."""
    return time_stamps.request_token(authority.url, chain.chain_head().hash)


def _of_yesterday(authority: StampAuthority, query: bytes) -> bytes:
    return authority.stamp(query, at=datetime.now(UTC) - timedelta(days=1))


def _too_long(authority: StampAuthority, query: bytes) -> bytes:
    return authority.stamp(query) + b"0" * time_stamps.LARGEST


@pytest.mark.parametrize(
    "answer", [_nonsense, _of_another_root, _replayed, _of_yesterday, _too_long]
)
def test_an_answer_that_proves_nothing_is_refused_and_leaves_no_line(
    authority: StampAuthority, answer: Callable[[StampAuthority, bytes], bytes]
) -> None:
    _chained()
    time_stamps.request_token(authority.url, chain.chain_head().hash)
    authority.answers.append(answer(authority, authority.queries[-1]))
    job = _turn()
    assert "StampRefused" in job.error
    assert _stamps() == []
    _turn()
    assert len(_stamps()) == 1


def test_an_answer_that_trickles_in_is_cut_off(
    authority: StampAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_stamps, "SECONDS", 1.0)
    authority.pause = 0.6
    _chained()
    began = time.monotonic()
    job = _turn()
    assert "StampRefused" in job.error
    # It has thousands of bytes, of which each would begin the time of a socket anew.
    assert time.monotonic() - began < 60


def test_a_redirect_is_not_followed(authority: StampAuthority) -> None:
    _chained()
    authority.status = 307
    job = _turn()
    assert "answered 307" in job.error
    assert len(authority.queries) == 1


def test_certificates_that_cannot_be_read_end_no_other_examination(
    authority: StampAuthority, configure: Any
) -> None:
    _chained()
    _turn()
    _chained()
    configure(TIME_STAMP_ROOTS="/nowhere/roots.pem")
    forging.tamper(AuditLine.objects.get(number=6), actor_name="somebody")
    faults = [fault for fault in audit() if fault is not None]
    named = {(fault.reason.split()[1], fault.code) for fault in faults}
    assert {("4", "not_verified"), ("6", "tampered_row")} <= named


def test_an_authority_that_is_away_fails_the_turn_and_is_asked_again(
    configure: Any, tmp_path: Path
) -> None:
    with served(new_authority()) as authority:
        roots = str(write_root(authority, tmp_path))
        configure(TIME_STAMP_URL=authority.url, TIME_STAMP_ROOTS=roots)
    _chained()
    job = _turn()
    assert job.error != ""
    assert job.due_at - timezone.now() < timedelta(hours=2)
    assert _stamps() == []


def test_a_stamp_of_another_line_or_with_another_token_is_named(
    authority: StampAuthority,
) -> None:
    _chained()
    _turn()
    chain.chain_lines()
    (line,) = _stamps()
    stamped = dict(line.facts)
    for facts, reason in (
        ({"hash": "0" * 64}, "has a time stamp of another line 3"),
        ({"number": 2}, "has a time stamp of another line 2"),
        ({"token": base64.b64encode(b"no token").decode()}, "proves nothing"),
        ({"token": "no base64"}, "does not say which line was stamped"),
        ({"at": "2020-01-01T00:00:00+00:00"}, "says another time"),
    ):
        # Whoever has our keys can seal the line anew.
        forging.reseal(line, facts=stamped | facts)
        reasons = [fault.reason for fault in audit() if fault is not None]
        assert any(reason in named for named in reasons), (facts, reasons)


def test_a_token_is_verified_by_openssl_alone(
    authority: StampAuthority, tmp_path: Path
) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the command openssl is not installed here")
    _chained()
    _turn()
    (line,) = _stamps()
    answer = tmp_path / "token.tsr"
    answer.write_bytes(base64.b64decode(line.facts["token"]))
    head = tmp_path / "head.txt"
    head.write_text(line.facts["hash"])
    command = [openssl, "ts", "-verify", "-data", str(head), "-in", str(answer)]
    command += ["-CAfile", str(tmp_path / "roots.pem")]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Verification: OK" in verified.stdout, verified.stderr
    head.write_text("0" * 64)
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0


def test_the_page_says_up_to_which_line_the_log_was_stamped(
    authority: StampAuthority, people: People, client: Client
) -> None:
    _chained()
    _turn()
    auditor: User = people.auditor
    client.force_login(auditor)
    page = client.get(reverse("audit"))
    assert "Stamped to line 3 by 127.0.0.1" in page.content.decode()
    (line,) = _stamps()
    opened = client.get(reverse("audit_line", args=[line.id])).content.decode()
    assert line.facts["token"] not in opened
    assert line.facts["hash"] in opened


def test_a_check_names_what_stamping_lacks(configure: Any, tmp_path: Path) -> None:
    assert checks.check_time_stamps(None) == []
    for roots in ("", "/nowhere/roots.pem", __file__):
        configure(TIME_STAMP_URL="https://stamps.example.org", TIME_STAMP_ROOTS=roots)
        (error,) = checks.check_time_stamps(None)
        assert error.id == "orchestrator.E007"
    roots = str(write_root(new_authority(), tmp_path))
    configure(TIME_STAMP_URL="https://stamps.example.org", TIME_STAMP_ROOTS=roots)
    assert checks.check_time_stamps(None) == []
