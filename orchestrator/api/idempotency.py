"""`Idempotency-Key`: a repeated POST gives the first one's answer. A record is written in the transaction of the act.

A record is (user, method, path, key) -> hash of the body, answer. Answers 2xx, 409 and 410 are kept for seven days.
Of two at once the second waits for the first one's transaction. A body or an answer may be of an encrypted run, so the
hash is keyed, and the answer is encrypted wherever there is a key to do so. Who may not see the run any more is given
no answer again: it is unknown, as everywhere.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
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
    """The first request with this key has not been answered. Cure: try again in a moment."""

    status_code = 409
    default_code = "in_progress"
    default_detail = "a request with this Idempotency-Key is in progress"


def idempotent(post: Post) -> Post:
    """A view's `post` that honours the header. What the act refuses is answered inside the transaction, which commits.

    So the audit line of a refusal stays; verbs are transactions of their own and have undone what they began.
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
            record = _claimed(request, key, body)
            if record.status is not None:
                _require_visible(request, **kwargs)
                return _again(record)
            response = _answered(view, post, request, *args, **kwargs)
            _keep(record, response, run=kwargs.get("run", ""))
            return response

    return once


def _claimed(request: Request, key: str, body: bytes) -> IdempotencyRecord:
    """The record of this key, new or as answered. Raises `KeyReused`, `InProgress`."""
    now = timezone.now()
    names = {"user": request.user, "method": request.method, "path": request.path, "key": key}
    # Its own only: all others of that age are removed by a standing job.
    IdempotencyRecord.objects.filter(created_at__lt=now - KEPT_FOR, **names).delete()
    try:
        # The unique constraint makes a second request wait here until the first one's transaction is over.
        with transaction.atomic():
            return IdempotencyRecord.objects.create(body_hash=_keyed(keyring().signer, body), created_at=now, **names)
    except IntegrityError:
        record = IdempotencyRecord.objects.filter(**names).first()
    if record is None or record.status is None:
        raise InProgress
    if record.body_hash not in {_keyed(key_id, body) for key_id in keyring().signing}:
        raise KeyReused
    return record


def _answered(view: Any, post: Post, request: Request, *args: Any, **kwargs: Any) -> Response:
    try:
        return post(view, request, *args, **kwargs)
    except Exception as error:
        if is_outage(error):
            raise  # what was begun in this transaction cannot be committed any more
        response: Response = view.handle_exception(error)  # raises what is no answer, and the transaction is undone
        return response


def _keep(record: IdempotencyRecord, response: Response, *, run: str) -> None:
    if 200 <= response.status_code < 300 or response.status_code in (409, 410):
        protection = sealed_rows.Protection(encrypted=bool(keyring().encryption))
        record.status = response.status_code
        answer = JSONRenderer().render(response.data)
        record.answer = sealed_rows.encrypted(record, "answer", answer, protection)
        record.save(update_fields=["status", "answer"])
        note_references(record, answer, run=run)
    else:
        record.delete()


def _require_visible(
    request: Request, *, run: str = "", request_id: UUID | None = None, checkpoint: str = "", **_: Any
) -> None:
    """Raise `UnknownThing` where who asks may not see any more what the address names: the answer tells of it."""
    if checkpoint and not may_see_run(request.user, timeline.get_checkpoint(checkpoint).run):
        raise unknown_thing("checkpoint", checkpoint)
    if run:
        visible_run(request.user, run)
    if request_id is not None:
        visible_request(request.user, request_id)


def _again(record: IdempotencyRecord) -> Response:
    status = record.status or 0
    content_type = MEDIA_TYPE if status >= 400 else None
    return Response(json.loads(sealed_rows.decrypted(record, "answer")), status=status, content_type=content_type)


def body_digest(data: Any) -> bytes:
    """SHA-256 of what was posted, whatever the order of its keys; of a file, its bytes and not their wrapping."""
    plain = {name: _plain(value) for name, value in data.items()} if isinstance(data, Mapping) else data
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).digest()


def _keyed(key_id: str, body: bytes) -> str:
    """The hash that a record keeps: it tells nothing to whoever lacks the key."""
    return keyring().mac(key_id, b"idempotency " + body).hex()


def _plain(value: Any) -> Any:
    if not isinstance(value, UploadedFile):
        return value
    digest = hashlib.sha256()
    for chunk in value.chunks():
        digest.update(chunk)
    value.seek(0)
    return [value.name, digest.hexdigest()]
