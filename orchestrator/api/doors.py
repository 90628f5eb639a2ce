"""The endpoint at which other services deliver messages, signed as Standard Webhooks
describe it. It knows no session and no token: the signature says who sends.
"""

import secrets
import time
from typing import IO, Any

from rest_framework import serializers
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe
from approvals.doors import messages, verbs
from approvals.models import Door, DoorMessage, MessageStatus
from approvals.webhooks import signatures
from checkpoints.core.strict_json import NotStrict, parse_strict
from orchestrator.api.parsing import most_bytes, too_large
from orchestrator.api.throttle import refuse_message
from orchestrator.engine.errors import UNREADABLE, InvalidValue, WrongStatus

LONGEST_ID = 200


class SignedBytes(BaseParser):
    """Reads a body as it was signed, and no further than the limit."""

    media_type = "application/json"

    def parse(  # type: ignore[override]
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> bytes:
        most = most_bytes()
        data: bytes = stream.read(most + 1)
        if len(data) > most:
            raise too_large(most)
        return data


class UnsignedMessage(APIException):
    """There is no such open door, or the message is not signed for it. Cure: the
    secret of the door, and a clock that is right.
    """

    status_code = 401
    default_code = "not_signed"
    default_detail = "there is no such door, or this message is not signed for it"


class MessageBody(serializers.Serializer[Any]):
    """The message of another service: any JSON, in which the door knows its way."""


class MessageOut(serializers.Serializer[DoorMessage]):
    """The outcome of a message."""

    status = serializers.CharField(
        help_text="delivered, or kept until its question is asked"
    )


class DoorMessages(APIView):
    """Messages of another service at a door."""

    authentication_classes = []
    permission_classes = []
    parser_classes = [SignedBytes]
    has_own_ids = True

    @describe(
        operation_id="door_deliver",
        request=MessageBody,
        responses={200: MessageOut, 202: MessageOut},
        auth=[],
    )
    def post(self, request: Request, door: str) -> Response:
        """Deliver a message to the run that waits for it. Its `webhook-id` takes effect
        once.
        """
        raw = request.data if isinstance(request.data, bytes) else b""
        row = _door_of(request, door, raw)
        if row is None:
            refuse_message(request, UnsignedMessage())
        message_id = request.headers["webhook-id"]
        message = messages.receive(row, message_id, raw, _json_of(raw))
        _require_accepted(message)
        is_kept = message.status == MessageStatus.KEPT
        return Response({"status": message.status}, status=202 if is_kept else 200)


def _door_of(request: Request, slug: str, raw: bytes) -> Door | None:
    """Return the door for which a message is signed; None if there is no such door, it
    is not open, or it does not match its seal.
    """
    rows = Door.objects.select_related("account")
    door = rows.filter(slug=slug[: verbs.LONGEST_SLUG + 1]).first()
    id = request.headers.get("webhook-id", "")
    is_id = 1 <= len(id) <= LONGEST_ID and id.isascii() and id.isprintable()
    fits = signatures.is_signed(
        _key_of(door),
        id,
        request.headers.get("webhook-timestamp", ""),
        request.headers.get("webhook-signature", ""),
        raw,
        now=time.time(),
    )
    return door if door and fits and is_id and verbs.is_open(door) else None


def _key_of(door: Door | None) -> bytes:
    """Return the key of a door, or one that nobody has: whoever cannot sign learns
    nothing of which doors there are.
    """
    try:
        if door is not None:
            return verbs.key_of(door)
    except UNREADABLE:
        pass
    return secrets.token_bytes()


def _json_of(raw: bytes) -> Any:
    try:
        return parse_strict(raw)
    except NotStrict as error:
        raise ParseError(f"malformed JSON: {error}") from error


def _require_accepted(message: DoorMessage) -> None:
    """Raise the refusal of a message that was not delivered, the same each time."""
    if message.status != MessageStatus.REFUSED:
        return
    reason = messages.reason_of(message)
    kind = InvalidValue if message.code == "invalid_value" else WrongStatus
    raise kind(f"the message was not delivered: {reason}", reason=message.code)
