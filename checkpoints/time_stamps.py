"""Time stamps of the audit log's head, by an authority outside (RFC 3161).

A token of the authority proves that the head existed at that time, and with it every line
before it, to people who trust neither the database nor our keys: whoever has both can
write another history, but cannot have it stamped in the past. Each token is a line of the
audit log itself. The library `rfc3161-client` reads them; without it none are made.
"""

import base64
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from cryptography import x509

from checkpoints.audit import chain
from checkpoints.audit import lines as audit_log
from checkpoints.audit.chain import ChainHead
from checkpoints.conf import conf
from checkpoints.db.clock import read_now
from checkpoints.models import AuditLine
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine.frozen import frozen

KIND = "audit_stamped"
"""The kind of a line with a token. Facts: `number` and `hash` of the head, the
`authority`, the time `at` that it states, and its answer as `token`, DER in base64.
"""
EVERY = timedelta(days=1)
"""The time between two stamps; after a failure the next attempt is an hour later."""
SECONDS = 20.0
"""How long the authority may take to answer."""
LARGEST = 64 * 1024
"""The most bytes of an answer."""

# The library is imported where it is used; most processes never need it.
is_available = find_spec("rfc3161_client") is not None


class StampRefused(Exception):
    """The authority gave no token, or one that does not prove the head."""


@frozen
class Stamp:
    """The stamped head and the token that a line of the kind `KIND` holds."""

    head: ChainHead
    token: bytes


def stamp_head(lease: JobLease) -> Iterator[Step]:
    """The job `stamp_audit_log`: have the head of the audit log stamped, once a day, if
    lines were chained since the last time. Does nothing where no authority is
    configured.

    Raises `StampRefused`, `OSError` where the authority cannot be reached or the roots
    cannot be read, and `ValueError` where these are no certificates.
    """
    url = conf().time_stamp_url
    head = chain.chain_head()
    if not url or not _is_due(head):
        return
    token = request_token(url, head.hash)
    line = audit_log.record(
        KIND,
        actor=None,
        number=head.number,
        hash=head.hash,
        authority=urlsplit(url).hostname or "",
        at=_stated_time(token),
        token=base64.b64encode(token).decode(),
    )
    yield Step(1, note=f"line {head.number} stamped at {line.facts['at']}")


def _is_due(head: ChainHead) -> bool:
    """Return whether the head is to be stamped now."""
    if head.number == 0:
        return False
    last = AuditLine.objects.filter(kind=KIND).order_by("-id").first()
    if last is None:
        return True
    if last.at + EVERY > read_now():
        return False
    later = AuditLine.objects.filter(number__gt=last.facts.get("number", 0))
    # A stamp is a line too, and that line alone needs no further stamp.
    return later.exclude(kind=KIND).exists()


def request_token(url: str, hash_: str) -> bytes:
    """Return the authority's answer for the hash of a head: a TimeStampResp, DER. What
    is stamped is the SHA-256 of the hash's hexadecimal text. Raises what `stamp_head`
    does.
    """
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    message = hash_.encode()
    builder = TimestampRequestBuilder().data(message)
    query = builder.hash_algorithm(HashAlgorithm.SHA256).build()
    # The address is a setting, and settings allow http and https alone.
    request = Request(  # noqa: S310
        url,
        data=query.as_bytes(),
        headers={"Content-Type": "application/timestamp-query"},
    )
    with urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        token: bytes = answer.read(LARGEST + 1)
    if len(token) > LARGEST:
        raise StampRefused(f"the answer of {url} is longer than {LARGEST:,} bytes")
    # The nonce shows that it is the answer to this request.
    reason = fault_of_token(token, hash_, nonce=query.nonce)
    if reason:
        raise StampRefused(f"the answer of {url} {reason}")
    return token


def fault_of_token(token: bytes, hash_: str, *, nonce: int | None = None) -> str:
    """Return why a token does not prove this hash, under the certificates that the
    settings name; empty if it does. Raises `OSError` and `ValueError` for certificates
    that cannot be read.
    """
    from rfc3161_client import (
        VerificationError,
        VerifierBuilder,
        decode_timestamp_response,
    )

    builder = VerifierBuilder(roots=_roots(), nonce=nonce)
    try:
        response = decode_timestamp_response(token)
        builder.build().verify_message(response, hash_.encode())
    except (ValueError, VerificationError) as error:
        return f"proves nothing: {error}"
    return ""


def _roots() -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(Path(conf().time_stamp_roots).read_bytes())


def _stated_time(token: bytes) -> str:
    """Return the time that a token states, as ISO 8601."""
    from rfc3161_client import decode_timestamp_response

    return decode_timestamp_response(token).tst_info.gen_time.isoformat()


def stamp_of(line: AuditLine) -> Stamp | None:
    """Return what a line says of a stamp; None if that is unclear."""
    facts: Any = line.facts
    match facts:
        case {"number": int(number), "hash": str(hash_), "token": str(text)}:
            try:
                token = base64.b64decode(text, validate=True)
            except ValueError:
                return None
            return Stamp(ChainHead(number, hash_), token)
    return None


def latest_stamp() -> AuditLine | None:
    """Return the newest line with a token, if it is as it was sealed. One query."""
    line = AuditLine.objects.filter(kind=KIND).order_by("-id").first()
    if line is None or fault_of(line, PLAIN) is not None:
        return None
    return line


def can_verify() -> bool:
    """Return whether tokens can be verified here: the library is installed, and the
    settings name the certificates.
    """
    return is_available and bool(conf().time_stamp_roots)
