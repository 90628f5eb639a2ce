"""Reading bodies: JSON objects of bounded size, and nothing else."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.parsers import BaseParser

from checkpoints.core.strict_json import NotStrict, parse_strict
from orchestrator.engine.errors import PayloadTooLarge


class JSONObjects(BaseParser):
    """A JSON object, read no further than the limit, whatever length was announced."""

    media_type = "application/json"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        most = most_bytes()
        data = stream.read(most + 1)
        if len(data) > most:
            raise too_large(most)
        try:
            value = parse_strict(data)
        except NotStrict as error:
            if error.path:
                raise ValidationError({error.path: ["This is given more than once."]}) from error
            raise ParseError(f"malformed JSON: {error}") from error
        if not isinstance(value, dict):
            raise ParseError("the body must be a JSON object")
        return value


class LengthRequired(APIException):
    """The body does not say how long it is. Cure: send Content-Length instead of chunks."""

    status_code = 411
    default_code = "length_required"
    default_detail = "a body needs a Content-Length; bodies in chunks are not read"


def check_length(meta: Mapping[str, Any], *, most: int) -> None:
    """Refuse a body by what its headers announce. Raises `LengthRequired`, `PayloadTooLarge`."""
    announced = str(meta.get("CONTENT_LENGTH") or "")
    if not announced and meta.get("HTTP_TRANSFER_ENCODING"):
        raise LengthRequired
    if announced.isdecimal() and int(announced) > most:
        raise too_large(most)


def most_bytes() -> int:
    """The largest body in bytes."""
    return settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 8 * 1024 * 1024


def too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than {most} bytes", most=most)
