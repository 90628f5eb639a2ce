"""Time stamps of the audit log's head, by an authority outside (RFC 3161).

A token of the authority proves that the head existed at that time, and with it every line
before it, to people who trust neither the database nor our keys: whoever has both can
write another history, but cannot have it stamped in the past. Each token is a line of the
audit log itself. The library `rfc3161-client` reads them; without it none are made.
"""

import base64
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import urlsplit

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
"""The time between two stamps."""
LATEST = timedelta(hours=1)
"""By how much the time that an authority states may differ from the clock here."""
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
    """The stamped head and the token that a line of the kind `KIND` holds, with the
    authority and the time that it stated.
    """

    head: ChainHead
    token: bytes
    authority: str
    at: datetime


def stamp_head(lease: JobLease) -> Iterator[Step]:
    """The job `stamp_audit_log`: have the head of the audit log stamped, once a day, if
    lines were chained since the last time. Does nothing where no authority is
    configured.

    Raises `StampRefused`, including where the authority cannot be reached; `OSError`
    where the roots cannot be read, and `ValueError` where these are no certificates.
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
        at=stated_time(token).isoformat(),
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
    token = _answer(url, query.as_bytes())
    # The nonce shows that it is the answer to this request.
    reason = fault_of_token(token, hash_, nonce=query.nonce)
    if reason:
        raise StampRefused(f"the answer of the authority {reason}")
    stated = stated_time(token)
    if abs(stated - read_now()) > LATEST:
        raise StampRefused(
            f"the authority states the time {stated.isoformat()}, which differs from the "
            "clock here by more than an hour"
        )
    return token


def _answer(url: str, query: bytes) -> bytes:
    """Return the body that an address answers to a query. Follows no redirect. Raises
    `StampRefused`.
    """
    address = urlsplit(url)
    connect = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = connect(address.hostname or "", address.port, timeout=SECONDS)
    headers = {"Content-Type": "application/timestamp-query"}
    try:
        connection.connect()
        with _limited(connection.sock):
            connection.request("POST", address.path or "/", query, headers)
            answer = connection.getresponse()
            body = answer.read(LARGEST + 1)
    except (OSError, HTTPException) as error:
        reason = f"{address.hostname} gave no answer: {type(error).__name__}"
        raise StampRefused(reason) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise StampRefused(f"{address.hostname} answered {answer.status}")
    if len(body) > LARGEST:
        raise StampRefused(f"the answer is longer than {LARGEST:,} bytes")
    return body


@contextmanager
def _limited(connection: socket.socket) -> Iterator[None]:
    """Cut a connection off when its time is over, for a time limit of a socket starts
    over with each byte that arrives.
    """
    limit = Timer(SECONDS, _cut, [connection])
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _cut(connection: socket.socket) -> None:
    try:
        # Bypasses the TLS layer, which another thread is using.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        # It was closed in the meantime.
        return


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

    builder = VerifierBuilder(roots=roots(), nonce=nonce)
    try:
        response = decode_timestamp_response(token)
        builder.build().verify_message(response, hash_.encode())
    except (ValueError, VerificationError) as error:
        return f"proves nothing: {error}"
    except Exception as error:
        # Certificates in a foreign answer may break in any way.
        return f"proves nothing: {type(error).__name__}"
    return ""


def roots() -> list[x509.Certificate]:
    """Return the certificates that the settings name. Raises `OSError` where they cannot
    be read, and `ValueError` where they are none.
    """
    return x509.load_pem_x509_certificates(Path(conf().time_stamp_roots).read_bytes())


def stated_time(token: bytes) -> datetime:
    """Return the time that a token states. Raises `ValueError` if it is none."""
    from rfc3161_client import decode_timestamp_response

    return decode_timestamp_response(token).tst_info.gen_time


def stamp_of(line: AuditLine) -> Stamp | None:
    """Return what a line says of a stamp; None if that is unclear."""
    facts: Any = line.facts
    match facts:
        case {
            "number": int(number),
            "hash": str(hash_),
            "token": str(text),
            "authority": str(authority),
            "at": str(moment),
        }:
            try:
                token = base64.b64decode(text, validate=True)
                at = datetime.fromisoformat(moment)
            except ValueError:
                return None
            return Stamp(ChainHead(number, hash_), token, authority, at)
    return None


def latest_stamp() -> Stamp | None:
    """Return what the newest line with a token says, if it matches its seal. One query."""
    line = AuditLine.objects.filter(kind=KIND).order_by("-id").first()
    if line is None or fault_of(line, PLAIN) is not None:
        return None
    return stamp_of(line)


def can_verify() -> bool:
    """Return whether tokens can be verified here: the library is installed, and the
    settings name the certificates.
    """
    return is_available and bool(conf().time_stamp_roots)
