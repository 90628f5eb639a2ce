"""`Idempotency-Key`: a repeated POST gets the first one's answer. A record is written
in the transaction of the act.

A record maps (user, method, path, key) to a hash of the body and the answer. Answers
2xx, 409 and 410 are kept for seven days. If two requests come at once, the second waits
for the transaction of the first. A body or an answer may belong to an encrypted run, so
the hash is keyed, and the answer is encrypted if there is a key to do so. A caller who
may not see the run any more does not get the answer again: the run is unknown to them,
as everywhere; nor does one who lost the right that the view needs. What a view shows
once, such as a secret, is not kept: the repeated answer lacks it.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.exceptions import APIException, ParseError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.endpoints import visible_request
from approvals.permissions import may_see_run, visible_run
from checkpoints import timeline
from checkpoints.conf import keyring
from checkpoints.core.ids import unknown_thing
from checkpoints.db.outage import is_outage
from checkpoints.sealing import sealed_rows
from orchestrator.answer_references import note_references
from orchestrator.api.problems import MEDIA_TYPE
from orchestrator.models import IdempotencyRecord

KEPT_FOR = timedelta(days=7)
_LONGEST = 200

Post = Callable[..., Response]


class KeyReused(APIException):
    """The key was used with another body. Cure: a key for each act."""

    status_code = 422
    default_code = "idempotency_key_reused"
    default_detail = "this Idempotency-Key was used with another body"


class InProgress(APIException):
    """The first request with this key has not been answered yet. Cure: try again in a
    moment.
    """

    status_code = 409
    default_code = "in_progress"
    default_detail = "a request with this Idempotency-Key is in progress"


def idempotent(post: Post) -> Post:
    """Return a view's `post` that honours the header. Refusals are answered inside the
    transaction, which commits.

    So the audit line of a refusal stays. Verbs run in their own transactions, and have
    already undone what they began.
    """

    @functools.wraps(post)
    def once(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return post(view, request, *args, **kwargs)
        if not 1 <= len(key) <= _LONGEST:
            raise ParseError(f"an Idempotency-Key has 1 to {_LONGEST} characters")
        body = body_digest(request.data)
        with transaction.atomic():
            record = _claim_record(request, key, body)
            if record.status is not None:
                answered = functools.partial(_answer_again, record)
                return _answer(view, answered, request, *args, **kwargs)
            response = _answer(view, post, request, *args, **kwargs)
            answer = _without(response.data, getattr(view, "shown_once", ()))
            _record_answer(record, response.status_code, answer, kwargs.get("run", ""))
            return response

    return once


def _claim_record(request: Request, key: str, body: bytes) -> IdempotencyRecord:
    """Return the record of this key, new or with its answer. Raises `KeyReused`,
    `InProgress`.
    """
    now = timezone.now()
    names = {
        "user": request.user,
        "method": request.method,
        "path": request.path,
        "key": key,
    }
    # Only the record of this key: a standing job removes all others of that age.
    IdempotencyRecord.objects.filter(created_at__lt=now - KEPT_FOR, **names).delete()
    try:
        # The unique constraint makes a second request wait here until the first one's
        # transaction is over.
        with transaction.atomic():
            return IdempotencyRecord.objects.create(
                body_hash=_keyed_hash(keyring().signer, body),
                created_at=now,
                **names,
            )
    except IntegrityError:
        record = IdempotencyRecord.objects.filter(**names).first()
    # A refused first request has removed its record, so this one may be sent again.
    if record is None or record.status is None:
        raise InProgress
    # The hash may have been made under an older key.
    hashes = {_keyed_hash(key_id, body) for key_id in keyring().signing}
    if record.body_hash not in hashes:
        raise KeyReused
    return record


def _answer(
    view: Any, post: Post, request: Request, *args: Any, **kwargs: Any
) -> Response:
    try:
        return post(view, request, *args, **kwargs)
    except Exception as error:
        # After an outage this transaction can no longer be committed.
        if is_outage(error):
            raise
        # This raises an error that is no answer, and the transaction is rolled back.
        response: Response = view.handle_exception(error)
        return response


def _answer_again(
    record: IdempotencyRecord, view: Any, request: Request, **address: Any
) -> Response:
    """Return the answer that was kept. Raises what the view raises for a caller who may
    not, or no longer, do what its POST does.
    """
    _require_visible(request, **address)
    # Views without it act for whoever sees what their address names.
    require_rights = getattr(view, "require_rights", None)
    if require_rights is not None:
        require_rights(request, **address)
    return _recorded_answer(record)


def _without(data: Any, names: Collection[str]) -> Any:
    """Return the data of an answer without these members."""
    if not names or not isinstance(data, Mapping):
        return data
    return {name: value for name, value in data.items() if name not in names}


def _record_answer(record: IdempotencyRecord, status: int, data: Any, run: str) -> None:
    """Keep an answer 2xx, 409 or 410 in the record; after any other remove the record,
    so that the request can be sent again under its key.
    """
    if 200 <= status < 300 or status in (409, 410):
        protection = sealed_rows.Protection(encrypted=bool(keyring().encryption))
        record.status = status
        answer = JSONRenderer().render(data)
        record.answer = sealed_rows.encrypted(record, "answer", answer, protection)
        record.save(update_fields=["status", "answer"])
        note_references(record, answer, run=run)
    else:
        record.delete()


def _require_visible(
    request: Request,
    *,
    run: str = "",
    request_id: UUID | None = None,
    checkpoint: str = "",
    **_: Any,
) -> None:
    """Raise `UnknownThing` if the caller may no longer see what the address names,
    since the answer describes it.
    """
    if checkpoint:
        row = timeline.get_checkpoint(checkpoint)
        if not may_see_run(request.user, row.run):
            raise unknown_thing("checkpoint", checkpoint)
    if run:
        visible_run(request.user, run)
    if request_id is not None:
        visible_request(request.user, request_id)


def _recorded_answer(record: IdempotencyRecord) -> Response:
    status = record.status or 0
    content_type = MEDIA_TYPE if status >= 400 else None
    return Response(
        json.loads(sealed_rows.decrypted(record, "answer")),
        status=status,
        content_type=content_type,
    )


def body_digest(data: Any) -> bytes:
    """Return the SHA-256 of a posted body, whatever the order of its keys; for a file
    it covers the bytes, not the form around them.
    """
    plain = data
    if isinstance(data, Mapping):
        plain = {name: _plain(value) for name, value in data.items()}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _keyed_hash(key_id: str, body: bytes) -> str:
    """Return the hash that a record keeps. Without the key it reveals nothing about the
    body.
    """
    return keyring().mac(key_id, b"idempotency " + body).hex()


def _plain(value: Any) -> Any:
    if not isinstance(value, UploadedFile):
        return value
    digest = hashlib.sha256()
    for chunk in value.chunks():
        digest.update(chunk)
    # The endpoint reads the file after this.
    value.seek(0)
    return [value.name, digest.hexdigest()]
