"""Messages at doors: each takes effect once, as the answer that the account of its door
signs. One that comes before its question waits for it.

Locks are taken in this order: the run, then the message, then what a signature locks.
A message is kept by a transaction that holds its run, or else is followed by a job that
looks for the run once more; a request is opened by a transaction that holds the run, and
looks for messages. So one of the two sees the other.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from approvals import reviews
from approvals.doors.pointers import value_at
from approvals.doors.verbs import (
    is_open,
    may_manage,
    require_service_account,
    verify_door,
)
from approvals.gates.new_requests import DELIVER_MESSAGES
from approvals.gates.request_state import load_states
from approvals.models import (
    ApprovalRequest,
    Door,
    DoorMessage,
    MessageStatus,
    RequestStatus,
)
from approvals.results.rounds import lines_of
from checkpoints.audit import lines as audit_log
from checkpoints.conf import keyring
from checkpoints.core.arguments import checked_actor
from checkpoints.core.ids import is_storable, unknown_thing, uuid_of
from checkpoints.core.status import ENDS
from checkpoints.db.clock import db_in, read_now
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.errors import (
    UNREADABLE,
    CountersignError,
    InvalidValue,
    KeyConflict,
    UnknownThing,
    WrongStatus,
)

ANSWERED = (RequestStatus.SETTLED, RequestStatus.APPLIED)
KEPT_DAYS = 7
LONGEST_KEY = 200
REMOVED_AT_ONCE = 1000
NAMED_IN_LINE = 20
"""The most removed messages that a line of the audit log names."""
ERASED = "erased"
REASONS = {
    "door_closed": "the door is switched off, or its time is over",
    "no_service_account": "the account of the door may be one of a person",
    "run_ended": "the run has ended, or was cancelled",
    "several_questions": "several reviews of this node wait at once",
    "not_a_question": "the review does not ask for exactly one value",
    "already_decided": "the question was answered already",
    "invalid_value": "the answer is not what the question asks for",
    "not_a_reviewer": "the account of the door is no reviewer of the gate",
    "confirmation_required": "the gate asks who signs to log in once more",
    "claimed": "a person has taken the review",
    "incompatible_graph": "no worker can go on with the graph of the run now",
    "not_considered": "the gate asks who signs to consider the review first",
    "tampered_row": "a row was changed in the database",
    "wrong_key": "a key of the settings is missing",
    ERASED: "values of the run were erased",
}
"""Code of a refusal -> what it says. The messages of errors may quote values."""


def reason_of(message: DoorMessage) -> str:
    """Return why a message was refused, in words; empty if it was not."""
    return REASONS.get(message.code, message.code.replace("_", " "))


def receive(door: Door, message_id: str, raw: bytes, body: Any) -> DoorMessage:
    """Deliver a message of which the signature was verified, keep it until its question
    is asked, or refuse it; its `status` says which. `raw` are the bytes that were
    signed, `body` is their JSON. A message that came before is returned as it is.

    Raises, having stored nothing: `InvalidValue` if the body lacks what the door looks
    for, `KeyConflict` if this id came with another body.
    """
    key = _key_in(door, body)
    value_at(body, door.answer_pointer)
    with transaction.atomic():
        run, fault = _run_or_fault(door.graph, key)
        new = _new_message(door, message_id, key, raw, body)
        DoorMessage.objects.bulk_create([new], ignore_conflicts=True)
        rows = DoorMessage.objects.filter(door=door, message_id=message_id)
        message = rows.select_for_update().get()
        if message.id != new.id:
            _require_same_body(message, raw)
        elif fault:
            close_message(message, MessageStatus.REFUSED, fault)
        elif run is None:
            # The run may be started, and ask, before this is committed.
            jobs.add_job(DELIVER_MESSAGES, message=str(message.id))
        else:
            message.door = door
            _offer(message, run)
    return message


def deliver_messages(lease: JobLease) -> Iterator[Step]:
    """Deliver the messages that are kept for the run of the one that the job names, the
    oldest first.
    """
    named = DoorMessage.objects.filter(id=UUID(lease.facts["message"])).first()
    if named is None:
        return
    waiting = DoorMessage.objects.filter(
        status=MessageStatus.KEPT, key=named.key, graph=named.graph
    )
    ids = waiting.order_by("at", "id").values_list("id", flat=True)
    for number, message_id in enumerate(list(ids), start=1):
        _deliver(message_id, only=MessageStatus.KEPT)
        yield Step(number, note="messages offered")


def deliver_again(message_id: UUID | str, *, by: Any) -> DoorMessage:
    """Offer a message once more that was refused. `by` None is the system. Raises
    `UnknownThing`, and `WrongStatus` for one that was not refused, or was erased.
    """
    person = checked_actor(by, "by")
    if person is not None and not may_manage(person):
        raise UnknownThing("there are no doors")
    id = uuid_of(message_id, "message")
    rows = DoorMessage.objects.select_related("door")
    message = rows.filter(id=id, status=MessageStatus.REFUSED).first()
    if message is None:
        raise unknown_thing("refused message", message_id)
    if message.code == ERASED:
        raise WrongStatus("this message was erased")
    audit_log.record(
        "door_message_offered",
        actor=by,
        graph=message.graph,
        door=message.door.slug,
        message=message.message_id,
    )
    offered = _deliver(id, only=MessageStatus.REFUSED)
    if offered is None:
        raise unknown_thing("refused message", message_id)
    return offered


def messages_that_are_old(lease: JobLease) -> Iterator[Step]:
    """Remove messages after `KEPT_DAYS`, in batches. Those that were not delivered leave
    a line in the audit log.
    """
    removed = int(lease.place or 0)
    while batch := _remove_oldest():
        removed += batch
        yield Step(removed, note="old messages removed", place=removed)


@transaction.atomic
def _remove_oldest() -> int:
    """Remove a batch of old messages, and return how many."""
    old = DoorMessage.objects.filter(at__lt=db_in(-KEPT_DAYS * 86_400)).order_by("at")
    # Without their bodies. One that is being delivered is left to the next turn.
    columns = old.only("door", "message_id", "key", "status")
    locked = columns.select_for_update(skip_locked=True)
    batch = list(locked[:REMOVED_AT_ONCE])
    undelivered: dict[UUID, list[DoorMessage]] = {}
    for message in batch:
        if message.status != MessageStatus.DELIVERED:
            undelivered.setdefault(message.door_id, []).append(message)
    for door in Door.objects.filter(id__in=undelivered):
        rows = undelivered[door.id]
        audit_log.record(
            "door_messages_removed",
            actor=None,
            graph=door.graph,
            door=door.slug,
            count=len(rows),
            first=[
                {"message": row.message_id, "key": row.key}
                for row in rows[:NAMED_IN_LINE]
            ],
        )
    DoorMessage.objects.filter(id__in=[message.id for message in batch]).delete()
    return len(batch)


def close_message(message: DoorMessage, status: str, code: str = "") -> None:
    """Note what came of a message, and drop its body unless it may be offered again."""
    values: dict[str, Any] = {"status": status, "code": code, "ended_at": None}
    if status != MessageStatus.KEPT:
        values["ended_at"] = read_now()
    if status == MessageStatus.DELIVERED or code == ERASED:
        values["body"] = b""
    protection = Protection(encrypted=message.encrypted)
    if fault_of(message, protection) is None:
        changed = sealed_rows.seal_again(message, protection, **values)
        message.save(update_fields=changed)
        return
    # A new seal would make the changed row look as it was written.
    for name, value in values.items():
        setattr(message, name, value)
    message.save(update_fields=[*values])


def _key_in(door: Door, body: Any) -> str:
    """Return the key of the run that a body names. Raises `InvalidValue`."""
    key = value_at(body, door.key_pointer)
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    is_key = isinstance(key, str) and 1 <= len(key) <= LONGEST_KEY
    if not is_key or not is_storable(key):
        raise InvalidValue(
            f"what is at {door.key_pointer} is no key of a run", path=door.key_pointer
        )
    return str(key)


def _locked_run(graph: str, key: str) -> Run | None:
    """Return the run of this key, locked; None if there is none. A fork has another
    key, so news for its origin is none for it.
    """
    rows = Run.objects.filter(key=key, graph=graph, imported=False)
    run_id = rows.values_list("id", flat=True).first()
    if run_id is None:
        return None
    try:
        return locked_run.lock_run(run_id)
    except UnknownThing:
        # Retention has removed it since the query above.
        return None


def _run_or_fault(graph: str, key: str) -> tuple[Run | None, str]:
    """Return the locked run of this key, None if there is none; or the code of the
    fault for which it cannot be read.
    """
    try:
        return _locked_run(graph, key), ""
    except UNREADABLE as fault:
        return None, fault.code


def _new_message(
    door: Door, message_id: str, key: str, raw: bytes, body: Any
) -> DoorMessage:
    protection = Protection(encrypted=bool(keyring().encryption))
    message = DoorMessage(
        door=door,
        message_id=message_id,
        graph=door.graph,
        key=key,
        body=pack_json(body),
        encrypted=protection.encrypted,
        body_hash=_hash_of(raw, keyring().signer),
        at=read_now(),
    )
    sealed_rows.seal_and_encrypt([message], protection)
    return message


def _hash_of(raw: bytes, key_id: str) -> str:
    # Without the key it reveals nothing about the body.
    return keyring().mac(key_id, b"door message " + raw).hex()


def _require_same_body(message: DoorMessage, raw: bytes) -> None:
    # The hash may have been made under an older key.
    hashes = {_hash_of(raw, key_id) for key_id in keyring().signing}
    if message.body_hash not in hashes:
        raise KeyConflict("this webhook-id came with another body")


def _deliver(message_id: UUID, *, only: str) -> DoorMessage | None:
    """Offer a message that has this status to its run, if there is one. Return None if
    the message was removed in the meantime.
    """
    rows = DoorMessage.objects.select_related("door__account").filter(id=message_id)
    with transaction.atomic():
        message = rows.first()
        if message is None:
            return None
        run = _locked_run(message.graph, message.key)
        message = rows.select_for_update(of=("self",)).first()
        if message and message.status == only and run is not None:
            _offer(message, run)
    return message


def _offer(message: DoorMessage, run: Run) -> None:
    """Sign a message as the answer to what its node asks in a locked run; keep it if it
    does not ask yet, and note why if it cannot be signed.
    """
    try:
        request = _question(message.door, run)
        if request is None:
            close_message(message, MessageStatus.KEPT)
            return
        _sign(message, run, request)
    except CountersignError as error:
        close_message(message, MessageStatus.REFUSED, error.code)
    else:
        close_message(message, MessageStatus.DELIVERED)


def _question(door: Door, run: Run) -> ApprovalRequest | None:
    """Return the request that the door may answer; None if it may still be opened.
    Raises the refusal if there is no such request, and will be none.
    """
    verify_door(door)
    if run.erasure is not None:
        raise _refusal(ERASED)
    if not is_open(door):
        raise _refusal("door_closed")
    if run.cancel_at or run.status in ENDS:
        raise _refusal("run_ended")
    requests = ApprovalRequest.objects.filter(run=run, node=door.node)
    opened = requests.filter(status=RequestStatus.OPEN)
    waiting = list(islice(_on_the_way(opened, run), 2))
    if len(waiting) > 1:
        raise _refusal("several_questions")
    if waiting:
        return requests.get(id=waiting[0])
    if any(_on_the_way(requests.filter(status__in=ANSWERED), run)):
        raise _refusal("already_decided")
    return None


def _on_the_way(requests: "QuerySet[ApprovalRequest]", run: Run) -> Iterator[UUID]:
    """Yield the ids of those requests that a rewind has not left behind. Reads columns
    only, for a loop may have asked very often.
    """
    reach = lines_of([run.id]).past(run.id, run.line)
    places = requests.order_by("id").values_list("id", "line", "superstep")
    for id, line, superstep in places.iterator():
        if superstep <= reach.get(line, -1):
            yield id


def _sign(message: DoorMessage, run: Run, request: ApprovalRequest) -> None:
    """Sign the answer by the steps that a person takes."""
    sealed_rows.verify_row(message, Protection(encrypted=message.encrypted))
    account = message.door.account
    try:
        require_service_account(account)
    except InvalidValue:
        raise _refusal("no_service_account") from None
    request.run = run
    [state] = load_states([request], protection_of(run))
    if len(state.writes) != 1 or len(request.policy.get("asks", ())) != 1:
        raise _refusal("not_a_question")
    [write] = state.writes
    # A person may change their mind as long as others have to sign.
    answered = {(row.by_id, row.revision) for row in state.decisions}
    if (account.pk, write.revision) in answered:
        raise _refusal("already_decided")
    answer = {
        "write": str(write.write),
        "hash": write.hash,
        "verdict": "edit",
        "value": value_at(read_value(message, "body"), message.door.answer_pointer),
        "reason": f"Message {message.message_id} at the door {message.door.slug}",
    }
    reviews.sign(run.id, [answer], by=account)


def _refusal(code: str) -> CountersignError:
    return CountersignError(code, REASONS[code])
