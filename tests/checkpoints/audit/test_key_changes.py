"""A change of the keys in the settings is a line of the audit log: what came and what
went, and no secret.
"""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from approvals.audit.words import sentence_of
from checkpoints import bundle
from checkpoints.audit import key_changes
from checkpoints.audit import lines as audit_log
from checkpoints.conf import bundle_seed, keyring
from checkpoints.models import AuditLine, Job
from checkpoints.queue import jobs
from orchestrator.jobs import kinds
from tests.support import forging
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)
A, B, C, D, E = (bytes([n]) * 31 + bytes([n + 1]) for n in (17, 33, 65, 129, 200))
PUBLIC = bytes(range(32)).hex()
OTHER = bytes(range(1, 33)).hex()


def _turn(*, lost: bool = False) -> list[AuditLine]:
    """One turn of the job that chains the audit log. Gives the lines about keys, the
    oldest first. `lost`: the key that sealed where the chain stands is not there, or
    proves nothing, so nothing is chained.
    """
    Job.objects.filter(kind="anchor_heads").update(
        due_at=timezone.now() - timedelta(minutes=1)
    )
    error = kinds.advance(jobs.add_job("anchor_heads", name="anchor_heads")).error
    assert ("nothing is numbered until that is looked into" if lost else "") in error
    assert bool(error) == lost
    return list(AuditLine.objects.filter(kind="keys_changed").order_by("id"))


def _said(line: AuditLine) -> str:
    return sentence_of(line.kind, line.facts)


@pytest.fixture
def keys(configure: Any) -> Any:
    """`keys(SIGNING_KEYS=...)` changes keys in the settings, of which there are some
    already.
    """
    configure(
        SIGNING_KEYS={"s1": A},
        ENCRYPTION_KEYS={"e1": B},
        BUNDLE_KEY=C,
        TRUSTED_KEYS={"north": PUBLIC},
    )
    return configure


@pytest.mark.usefixtures("keys")
def test_the_first_line_says_what_is_there_and_the_next_turns_say_nothing() -> None:
    [line] = _turn()
    assert line.actor is None
    assert line.run is None
    assert line.number == 1
    derived = next(iter(keyring().signing))
    assert _said(line) == (
        f"found these keys in use: signing keys {derived} and s1, encryption key e1,"
        " trusted key north, "
        "s1 seals, e1 encrypts"
    )
    assert line.facts["keys"]["bundle"] == {"own": bundle.public_key().hex()}
    assert line.facts["keys"]["trusted"] == {"north": PUBLIC}
    assert len(_turn()) == len(_turn()) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"SIGNING_KEYS": {"s1": A, "s2": D}}, "signing key s2 is new, s2 seals"),
        ({"SIGNING_KEYS": {"s1": D}}, "signing key s1 is another one, UNPROVEN"),
        (
            {"SIGNING_KEYS": {"s2": A}},
            "signing key s2 is new, signing key s1 is gone, s2 seals, UNPROVEN",
        ),
        ({"SIGNING_KEYS": {}}, "signing key s1 is gone, DERIVED seals, UNPROVEN"),
        ({"ENCRYPTION_KEYS": {"e2": D, "e1": B}}, "encryption key e2 is new"),
        ({"ENCRYPTION_KEYS": {"e1": D}}, "encryption key e1 is another one"),
        ({"ENCRYPTION_KEYS": {}}, "encryption key e1 is gone, nothing encrypts"),
        ({"BUNDLE_KEY": D}, "the bundle key is another one"),
        ({"TRUSTED_KEYS": {"north": OTHER}}, "trusted key north is another one"),
        (
            {"TRUSTED_KEYS": {"south": OTHER}},
            "trusted key south is new, trusted key north is gone",
        ),
        (
            {"COMPROMISED_KEYS": {"s1": "2026-01-01"}},
            "s1 counts as compromised, DERIVED seals, UNPROVEN",
        ),
    ],
)
def test_a_change_is_told_once_with_what_came_and_what_went(
    keys: Any, change: dict[str, Any], said: str
) -> None:
    _turn()
    derived = next(iter(keyring().signing))
    keys(**change)
    lost = "UNPROVEN" in said
    _, line = _turn(lost=lost)
    said = said.replace("DERIVED", derived).replace(
        ", UNPROVEN", "; the line before this one does not verify"
    )
    assert _said(line) == f"found other keys in use: {said}"
    assert len(_turn(lost=lost)) == 2


def test_another_secret_key_is_a_change_of_what_is_derived_from_it(
    settings: Any,
) -> None:
    _turn()
    before = next(iter(keyring().signing))
    after = "another-secret-key-" * 4
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = after
    new = list(keyring().signing)[-1]
    assert _said(_turn()[-1]) == (
        f"found other keys in use: signing key {new} is new, the bundle key is another"
        f" one, {new} seals"
    )
    settings.SECRET_KEY_FALLBACKS = []
    # The line before was sealed by the new one.
    assert (
        _said(_turn()[-1]) == f"found other keys in use: signing key {before} is gone"
    )


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "facts", [{"keys": {}}, {"keys": 5}, {"keys": {"signing": 1}}, {}, [], "same"]
)
def test_behind_a_line_that_was_changed_there_is_a_new_one_that_says_so(
    facts: Any,
) -> None:
    [line] = _turn()
    key_facts = line.facts
    forging.tamper(
        line, facts=key_facts if facts == "same" else facts, actor_name="mallory"
    )
    _, new = _turn()
    assert _said(new).endswith("; the line before this one does not verify")
    assert _said(new).startswith("found the same keys in use") == (facts == "same")
    assert new.facts["keys"] == key_facts["keys"]
    assert new.facts["unproven"] == line.id
    assert len(_turn()) == 2


def test_a_line_holds_no_secret_and_nothing_that_is_made_of_one_without_a_key(
    keys: Any, settings: Any
) -> None:
    keys(COMPROMISED_KEYS={"s0": "2026-01-01"})
    [line] = _turn()
    text = json.dumps(line.facts)
    for secret in (A, B, C, bundle_seed(), *keyring().signing.values()):
        assert secret.hex() not in text
        assert secret.hex()[:16] not in text
    assert settings.SECRET_KEY not in text
    key_facts = line.facts["keys"]
    assert {
        len(fingerprint)
        for sort in ("signing", "encryption")
        for fingerprint in key_facts[sort].values()
    } == {16}
    keys(SIGNING_KEYS={"s1": A}, ENCRYPTION_KEYS={"e1": A})
    key_facts = _turn()[-1].facts["keys"]
    assert key_facts["signing"]["s1"] != key_facts["encryption"]["e1"], (
        "nobody sees that two keys are the same"
    )


def test_a_turn_without_a_change_costs_one_query_however_long_the_log_is() -> None:
    key_changes.record_key_changes()
    for n in range(50):
        audit_log.record("heads_anchored", actor=None, heads=[], upto=n)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        key_changes.record_key_changes()
    assert len(queries) == 1


@pytest.mark.usefixtures("keys")
def test_the_pages_of_the_audit_log_tell_it(people: People) -> None:
    [line] = _turn()
    browser = Client()
    browser.force_login(people.auditor)
    listed = browser.get(reverse("audit")).content.decode()
    assert "found these keys in use: signing keys" in listed
    opened = browser.get(reverse("audit_line", args=[line.id])).content.decode()
    assert "Keys changed" in opened
    assert line.facts["keys"]["signing"]["s1"] in opened
