"""The parser of bodies: JSON objects of bounded size, and nothing else."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.parsers import BaseParser

from checkpoints.core.strict_json import NotStrict, parse_strict
from orchestrator.engine.errors import PayloadTooLarge


class JSONObjects(BaseParser):
    """Parses a JSON object. Reads no further than the limit, whatever length was
    announced.
    """

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> dict[str, Any]:
        most = most_bytes()
        # One byte more shows that there is more.
        data = stream.read(most + 1)
        if len(data) > most:
            raise too_large(most)
        try:
            value = parse_strict(data)
        except NotStrict as error:
            if error.path:
                refusals = {error.path: ["This is given more than once."]}
                raise ValidationError(refusals) from error
            raise ParseError(f"malformed JSON: {error}") from error
        if not isinstance(value, dict):
            raise ParseError("the body must be a JSON object")
        return value


class LengthRequired(APIException):
    """The body does not say how long it is. Cure: send Content-Length instead of
    chunks.
    """

    status_code = 411
    default_code = "length_required"
    default_detail = "a body needs a Content-Length; bodies in chunks are not read"


def check_length(meta: Mapping[str, Any], *, most: int) -> None:
    """Refuse a body by what its headers announce. Raises `LengthRequired`,
    `PayloadTooLarge`.
    """
    announced = str(meta.get("CONTENT_LENGTH") or "")
    # Django would read such a body as an empty one.
    if not announced and meta.get("HTTP_TRANSFER_ENCODING"):
        raise LengthRequired
    if announced.isdecimal() and int(announced) > most:
        raise too_large(most)


def most_bytes() -> int:
    """Return the size of the largest body, in bytes."""
    return settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 8 * 1024 * 1024


def too_large(most: int) -> PayloadTooLarge:
    """Return the refusal of a body that is larger than `most` bytes."""
    return PayloadTooLarge(f"the body is larger than {most} bytes", most=most)
