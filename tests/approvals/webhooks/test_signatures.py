"""Signatures, compared with those of the library."""

from datetime import UTC, datetime

import pytest
import standardwebhooks

from approvals.webhooks.signatures import (
    TOLERANCE,
    is_signed,
    key_of,
    new_secret,
    signature_of,
)

AT = 1_764_320_713
SECRET = "whsec_" + "A" * 44
KEY = key_of(SECRET)


def fits(signatures: str, *, at: str = str(AT), now: float = AT) -> bool:
    return is_signed(KEY, "msg_1", at, signatures, b"{}", now=now)


def test_a_signature_is_that_of_the_library() -> None:
    library = standardwebhooks.Webhook(SECRET)
    theirs = library.sign("msg_1", datetime.fromtimestamp(AT, UTC), "{}")
    assert signature_of(KEY, "msg_1", AT, b"{}") == theirs


def test_one_of_several_signatures_has_to_fit() -> None:
    right = signature_of(KEY, "msg_1", AT, b"{}")
    assert fits(right)
    assert fits(f"v1a,AAAA v1,BBBB {right}")
    assert not fits("v1,BBBB")
    assert not fits("")
    assert not fits("v1,é")


@pytest.mark.parametrize("seconds", [TOLERANCE, -TOLERANCE])
def test_five_minutes_either_way_are_tolerated(seconds: int) -> None:
    right = signature_of(KEY, "msg_1", AT, b"{}")
    assert fits(right, now=AT + seconds)
    assert not fits(right, now=AT + seconds + (1 if seconds > 0 else -1))


@pytest.mark.parametrize("at", ["", "soon", "1e9", "-1", "٣", "9" * 13])
def test_a_moment_that_is_none_is_refused(at: str) -> None:
    assert not fits(signature_of(KEY, "msg_1", at, b"{}"), at=at)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_AAAA", "!", "A" * 92])
def test_what_is_no_secret_has_no_key(secret: str) -> None:
    with pytest.raises(ValueError, match="it "):
        key_of(secret)
    assert len(key_of(new_secret())) == 32
