"""Tokens are shown once, kept as digests, and end when they are revoked, out of date, or their user is gone."""

from datetime import timedelta

import pytest
from django.utils import timezone

from orchestrator import tokens
from orchestrator.engine.errors import InvalidValue
from orchestrator.models import ApiToken
from tests.support.cast import People


def test_a_token_is_found_by_its_text_and_its_text_is_nowhere_kept(people: People) -> None:
    text = tokens.make_token(people.starter, name="nightly import")
    found = tokens.find_token(text)
    assert found is not None
    assert (found.user, found.name, found.scopes) == (people.starter, "nightly import", list(tokens.SCOPES))
    row = ApiToken.objects.values().get()
    assert all(text not in str(value) for value in row.values())
    assert len(text) - len(row["hint"]) > 30


def test_a_token_that_is_revoked_or_out_of_date_or_whose_user_is_inactive_is_not_found(people: People) -> None:
    text = tokens.make_token(people.starter, days=1)
    now = timezone.now()
    for columns in ({"revoked_at": now}, {"expires_at": now - timedelta(seconds=1)}):
        ApiToken.objects.update(**columns)
        assert tokens.find_token(text) is None
        ApiToken.objects.update(revoked_at=None, expires_at=None)
    assert tokens.find_token(text) is not None
    people.starter.is_active = False
    people.starter.save()
    assert tokens.find_token(text) is None


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["", "cst_", "cst_wrong", "\x00", "ä"])
def test_what_is_no_token_is_not_found(text: str) -> None:
    assert tokens.find_token(text) is None


def test_scopes_are_those_that_exist_and_keep_their_order(people: People) -> None:
    tokens.make_token(people.starter, scopes=["decide", "start"])
    assert ApiToken.objects.get().scopes == ["start", "decide"]
    for scopes in ([], ["start", "everything"]):
        with pytest.raises(InvalidValue):
            tokens.make_token(people.starter, scopes=scopes)


def test_a_token_is_good_for_at_least_a_day(people: People) -> None:
    with pytest.raises(InvalidValue):
        tokens.make_token(people.starter, days=0)
