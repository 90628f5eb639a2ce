"""Comments on a request: who may write one, and what it leaves alone."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from approvals import reviews
from approvals.models import ApprovalRequest, Notice, RequestClaim, RequestComment
from approvals.people import comments
from approvals.people.comments import LONGEST
from checkpoints import retention
from checkpoints.conf import keyring
from checkpoints.core.ids import uuid7
from checkpoints.models import AuditLine, ErasureRecord, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import (
    InvalidValue,
    KeyConflict,
    UnknownThing,
    WrongStatus,
)
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated, items_of
from tests.support.run_actions import log, pending, request
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    return run_actions.reviewer(people.second_reviewer)


@pytest.fixture
def asked(people: cast.People) -> ApprovalRequest:
    return request(advanced(gated()))


def texts(asked: ApprovalRequest) -> list[str]:
    return [read_value(row, "text") for row in asked.comments.all()]


def test_a_comment_has_author_text_and_time_and_a_line_of_the_audit_log(
    rita: User, asked: ApprovalRequest
) -> None:
    row = reviews.comment(asked.id, "Is this the right account?", by=rita)
    assert texts(asked) == ["Is this the right account?"]
    assert row.by_name == "rita"
    assert abs(timezone.now() - row.at).total_seconds() < 60
    line = AuditLine.objects.get(kind="request_commented")
    assert line.actor_name == "rita"
    assert line.request == asked.id
    assert line.facts == {"comment": str(row.id)}
    assert verify_run(asked.run_id) == []


def test_a_comment_leaves_the_run_and_its_log_as_they_are(
    rita: User, asked: ApprovalRequest
) -> None:
    before = Run.objects.filter(id=asked.run_id).values().get()
    lines = log(asked.run)
    reviews.comment(asked.id, "Just saying.", by=rita)
    assert Run.objects.filter(id=asked.run_id).values().get() == before
    assert log(asked.run) == lines
    assert request(asked.run).status == "open"


def test_a_comment_is_no_decision_and_signing_goes_on_beside_it(
    rita: User, ravi: User, asked: ApprovalRequest
) -> None:
    reviews.comment(asked.id, "Approved by me!", by=rita)
    assert ApprovalRequest.objects.get().status == "open"
    reviews.sign(asked.run_id, items_of(asked.run), by=ravi)
    assert runs.advance(asked.run_id).status == "completed"
    # The conversation goes on when all is done.
    reviews.comment(asked.id, "Thanks.", by=rita)
    assert texts(asked) == ["Approved by me!", "Thanks."]
    assert verify_run(asked.run_id) == []


def test_who_may_not_see_the_run_cannot_comment(
    people: cast.People, asked: ApprovalRequest
) -> None:
    with pytest.raises(UnknownThing):
        reviews.comment(asked.id, "Hello", by=people.nobody)
    with pytest.raises(UnknownThing):
        reviews.comment(uuid7(), "Hello", by=people.reviewer)
    assert not RequestComment.objects.exists()


def test_whoever_sees_the_run_may_comment_also_without_deciding(
    people: cast.People, asked: ApprovalRequest
) -> None:
    row = reviews.comment(asked.id, "From the desk.", by=people.steward)
    assert row.by == people.steward


@pytest.mark.parametrize("text", ["", " \n ", "x" * (LONGEST + 1), "a\0b", None])
def test_a_comment_is_a_text_of_bounded_length(
    rita: User, asked: ApprovalRequest, text: str
) -> None:
    with pytest.raises(InvalidValue):
        reviews.comment(asked.id, text, by=rita)
    assert not RequestComment.objects.exists()


def test_a_comment_may_be_about_one_write_of_the_request_and_no_other(
    rita: User, asked: ApprovalRequest
) -> None:
    (row,) = pending(asked.run)
    written = reviews.comment(asked.id, "This one?", by=rita, write=row.write)
    assert written.write == row.write
    with pytest.raises(InvalidValue, match="none of the request"):
        reviews.comment(asked.id, "This one?", by=rita, write=uuid7())
    assert verify_run(asked.run_id) == []


def test_posted_twice_under_one_id_it_is_written_once(
    rita: User, ravi: User, asked: ApprovalRequest
) -> None:
    id = uuid7()
    first = reviews.comment(asked.id, "Once.", by=rita, id=id)
    again = reviews.comment(asked.id, "Once.", by=rita, id=id)
    assert first == again
    assert RequestComment.objects.count() == 1
    assert AuditLine.objects.filter(kind="request_commented").count() == 1
    assert Notice.objects.filter(event="request.commented").count() == 1
    with pytest.raises(KeyConflict):
        reviews.comment(asked.id, "Other.", by=rita, id=id)
    with pytest.raises(KeyConflict):
        reviews.comment(asked.id, "Once.", by=ravi, id=id)


def test_an_imported_run_and_one_being_erased_take_no_comment(
    rita: User, asked: ApprovalRequest
) -> None:
    ErasureRecord.objects.create(run=asked.run_id, at=timezone.now())
    with pytest.raises(WrongStatus, match="being erased"):
        reviews.comment(asked.id, "Late.", by=rita)
    assert not RequestComment.objects.exists()
    assert not AuditLine.objects.filter(kind="request_commented").exists()
    assert not Notice.objects.filter(event="request.commented").exists()


def test_nobody_changes_or_removes_a_comment(
    rita: User, asked: ApprovalRequest
) -> None:
    row = reviews.comment(asked.id, "It stays.", by=rita)
    row.by_name = "ravi"
    for act in (row.save, row.delete, RequestComment.objects.all().delete):
        with pytest.raises(TypeError, match="append-only"):
            act()
    with pytest.raises(TypeError, match="append-only"):
        RequestComment.objects.update(by_name="ravi")


def by_hand(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_verification_names_a_comment_that_was_changed_removed_or_put_in(
    rita: User, asked: ApprovalRequest
) -> None:
    reviews.comment(asked.id, "It stays.", by=rita)
    with transaction.atomic():
        by_hand("UPDATE approvals_requestcomment SET by_name = 'ravi'")
        (fault,) = verify_run(asked.run_id)
        assert fault.table == "approvals_requestcomment"
        transaction.set_rollback(True)
    with transaction.atomic():
        by_hand("DELETE FROM approvals_requestcomment")
        (fault,) = verify_run(asked.run_id)
        assert fault.reason.endswith("are gone") or fault.reason.endswith("is gone")
        transaction.set_rollback(True)
    with transaction.atomic():
        AuditLine.objects.filter(kind="request_commented")._raw_delete("default")
        (fault,) = verify_run(asked.run_id)
        assert fault.reason.endswith("has no line in the audit log")
        transaction.set_rollback(True)
    assert verify_run(asked.run_id) == []


def test_in_an_encrypted_graph_the_text_is_encrypted(
    rita: User, configure: Callable[..., None]
) -> None:
    configure(ENCRYPTION_KEYS={"one": b"k" * 32})
    open_request = request(advanced(gated("hidden", encrypted=True)))
    row = reviews.comment(open_request.id, "Marta Example", by=rita)
    stored = bytes(RequestComment.objects.values_list("text", flat=True).get())
    assert b"Marta" not in stored
    row = RequestComment.objects.select_related("run").get()
    assert read_value(row, "text") == "Marta Example"
    assert verify_run(open_request.run_id) == []


def test_after_an_erasure_a_process_that_knows_the_data_key_does_not_use_it(
    people: cast.People, configure: Callable[..., None]
) -> None:
    configure(ENCRYPTION_KEYS={"one": b"k" * 32})
    open_request = request(advanced(gated("hidden", encrypted=True)))
    reviews.comment(open_request.id, "Marta Example", by=people.steward)
    ((name, key),) = keyring().data_keys.items()
    runs.cancel(open_request.run_id, by=people.steward)
    retention.erase(open_request.run_id, by=people.steward)
    # As in a process that knew the key before another one destroyed it.
    keyring().keep_data_key(name, key)
    keyring().data_keys_in_use[name] = True
    reviews.comment(open_request.id, "It is erased.", by=people.steward)
    keyring().forget_data_key(name)
    row = RequestComment.objects.select_related("run").latest("at")
    assert read_value(row, "text") == "It is erased."
    assert verify_run(open_request.run_id) == []


def test_nobody_takes_the_room_of_all_who_comment(
    rita: User, ravi: User, asked: ApprovalRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comments, "MOST", 4)
    monkeypatch.setattr(comments, "MOST_OF_PERSON", 2)
    for number in range(2):
        reviews.comment(asked.id, f"Number {number}.", by=rita)
    with pytest.raises(InvalidValue, match="a person writes 2 comments"):
        reviews.comment(asked.id, "Number 2.", by=rita)
    for number in range(2):
        reviews.comment(asked.id, f"Number {number}.", by=ravi)
    with pytest.raises(InvalidValue, match="a request has 4 comments"):
        reviews.comment(asked.id, "Number 2.", by=ravi)


def test_a_review_is_handed_over_with_a_comment_or_not_at_all(
    rita: User, ravi: User, asked: ApprovalRequest
) -> None:
    reviews.claim(asked.id, by=rita)
    with pytest.raises(InvalidValue):
        reviews.assign(asked.id, to=ravi, by=rita, comment="x" * (LONGEST + 1))
    assert RequestClaim.objects.get().by == rita
    reviews.assign(asked.id, to=ravi, by=rita, comment="I am away tomorrow.")
    assert RequestClaim.objects.get().by == ravi
    assert texts(asked) == ["I am away tomorrow."]
    assert verify_run(asked.run_id) == []


def test_the_same_comment_posted_at_the_same_moment_is_written_once(
    rita: User, asked: ApprovalRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = uuid7()
    looked = comments._earlier

    def not_yet(row: RequestComment, text: str) -> None:
        # The other one comes between the look and the insert.
        monkeypatch.setattr(comments, "_earlier", looked)
        comments.comment(asked.id, "Once.", by=rita, id=id)

    monkeypatch.setattr(comments, "_earlier", not_yet)
    assert reviews.comment(asked.id, "Once.", by=rita, id=id).id == id
    assert RequestComment.objects.count() == 1
    assert AuditLine.objects.filter(kind="request_commented").count() == 1
