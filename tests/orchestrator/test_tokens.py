"""Tokens are shown once, kept as digests, and end when they are revoked, out of date,
or their user is gone.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from checkpoints.models import AuditLine
from checkpoints.sealing import sealed_rows
from orchestrator import tokens
from orchestrator.engine.errors import InvalidValue
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from orchestrator.models import ApiToken
from tests.support.cast import People


def test_a_token_is_found_by_its_text_and_its_text_is_nowhere_kept(
    people: People,
) -> None:
    text = tokens.make_token(people.starter, name="nightly import")
    token = tokens.find_token(text)
    assert token is not None
    assert token.user == people.starter
    assert token.name == "nightly import"
    assert token.scopes == list(tokens.USUAL_SCOPES)
    row = ApiToken.objects.values().get()
    assert all(text not in str(value) for value in row.values())
    assert len(text) - len(row["hint"]) > 30


def test_a_token_that_is_revoked_or_out_of_date_or_whose_user_is_inactive_is_not_found(
    people: People,
) -> None:
    text = tokens.make_token(people.starter, days=1)
    now = timezone.now()
    row = ApiToken.objects.get()
    was = {"revoked_at": None, "expires_at": row.expires_at}
    for columns in ({"revoked_at": now}, {"expires_at": now - timedelta(seconds=1)}):
        _sealed_with(row, **columns)
        assert tokens.find_token(text) is None
        _sealed_with(row, **was)
    assert tokens.find_token(text) is not None
    people.starter.is_active = False
    people.starter.save()
    assert tokens.find_token(text) is None


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["", "cst_", "cst_wrong", "\x00", "ä"])
def test_what_is_no_token_is_not_found(text: str) -> None:
    assert tokens.find_token(text) is None


def test_a_token_may_erase_only_where_that_is_named(people: People) -> None:
    tokens.make_token(people.steward)
    assert "erase" not in ApiToken.objects.get().scopes


def test_scopes_are_those_that_exist_and_keep_their_order(people: People) -> None:
    tokens.make_token(people.starter, scopes=["decide", "start"])
    assert ApiToken.objects.get().scopes == ["start", "decide"]
    for scopes in ([], ["start", "everything"]):
        with pytest.raises(InvalidValue):
            tokens.make_token(people.starter, scopes=scopes)


def test_a_token_is_good_for_at_least_a_day(people: People) -> None:
    with pytest.raises(InvalidValue):
        tokens.make_token(people.starter, days=0)


def _sealed_with(row: ApiToken, **columns: Any) -> None:
    """The token as if it had been made with these columns."""
    names = sealed_rows.seal_again(row, sealed_rows.PLAIN, **columns)
    row.save(update_fields=names)


def test_a_token_whose_row_was_changed_by_sql_is_refused_and_named(
    people: People,
) -> None:
    text = tokens.make_token(people.starter, scopes=["read"], days=1)
    row = ApiToken.objects.get()
    now = timezone.now()
    for column, forged in {
        "scopes": ["read", "decide"],
        "user": people.reviewer,
        "expires_at": now + timedelta(days=900),
        "name": "x",
    }.items():
        was = getattr(row, column)
        ApiToken.objects.update(**{column: forged})
        assert tokens.find_token(text) is None, column
        assert AuditLine.objects.filter(kind="refused_token").exists()
        assert [fault.row for fault in tokens.token_faults()] == [
            f"orchestrator_apitoken {row.digest}"
        ]
        result = Verified()
        list(verify_runs(Wanted(), result, by=None))
        assert [fault["row"] for fault in result.bad] == [
            f"orchestrator_apitoken {row.digest}"
        ]
        ApiToken.objects.update(**{column: was})
    assert tokens.find_token(text) is not None


def test_a_token_that_was_revoked_stays_revoked(people: People) -> None:
    text = tokens.make_token(people.starter)
    tokens.revoke_token(ApiToken.objects.get())
    assert list(tokens.token_faults()) == []
    ApiToken.objects.update(revoked_at=None)
    assert tokens.find_token(text) is None


def test_who_has_the_database_alone_cannot_put_a_token_into_it(people: People) -> None:
    tokens.make_token(people.steward)
    ApiToken.objects.update(digest=tokens.token_digest("cst_mine"))
    assert tokens.find_token("cst_mine") is None


def test_a_token_works_as_long_as_the_key_is_known_that_was_there_when_it_was_made(
    people: People, settings: Any
) -> None:
    text = tokens.make_token(people.starter)
    former = settings.SECRET_KEY
    settings.SECRET_KEY = "another" * 10
    settings.SECRET_KEY_FALLBACKS = [former]
    assert tokens.find_token(text) is not None
    settings.SECRET_KEY_FALLBACKS = []
    assert tokens.find_token(text) is None
