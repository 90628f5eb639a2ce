"""Rows can be looked at in the Django admin, and changed by nobody."""

import pytest
from django.contrib import admin
from django.db import connection, transaction
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals.models import Door
from checkpoints.admin.rows import ReadOnlyRows
from checkpoints.audit import lines as audit_log
from checkpoints.models import (
    AuditLine,
    GraphVersion,
    LegalHold,
    Pin,
    RetentionPolicy,
    Run,
    RunLine,
    Upload,
    Worker,
)
from orchestrator import runs, tokens
from orchestrator.jobs import kinds
from orchestrator.models import ApiToken, BulkFork, BulkForkResult
from tests.support import api_graphs as graphs
from tests.support.cast import People, UserFactory
from tests.support.rows import a_worker

OURS = ("checkpoints", "approvals", "orchestrator")
MANAGED = {LegalHold, Pin, RetentionPolicy}
"""What stewards give and take: `test_clean_up_pages` has these. They make doors too, by
a form of its own.
"""
SHOWN = [
    model
    for model in admin.site._registry
    if model._meta.app_label in OURS and model not in MANAGED
]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: People) -> Run:
    graphs.register()
    return runs.advance(
        runs.start("gated", {"claim_id": "a <b> & c"}, key="A", by=people.starter).id
    )


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(
        UserFactory.create(username="root", is_superuser=True, is_staff=True)
    )
    return client


def test_all_rows_are_read_only() -> None:
    assert len(SHOWN) >= 14
    assert all(isinstance(admin.site._registry[model], ReadOnlyRows) for model in SHOWN)


@pytest.mark.parametrize("model", SHOWN, ids=lambda m: m._meta.label)
def test_a_list_and_a_row_open_and_neither_can_be_changed(
    root: Client, run: Run, model: type
) -> None:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"  # type: ignore[attr-defined]
    assert root.get(reverse(f"{name}_changelist")).status_code == 200
    may_add = 200 if model is Door else 403
    assert root.get(reverse(f"{name}_add")).status_code == may_add
    row = model.objects.first()  # type: ignore[attr-defined]
    if row is not None:
        address = reverse(f"{name}_change", args=[row.pk])
        assert root.get(address).status_code == 200
        assert root.post(address, {}).status_code == 403
        assert (
            root.post(
                reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}
            ).status_code
            == 403
        )


def test_how_a_line_began_and_what_a_bulk_fork_wants_can_be_read(
    root: Client, run: Run, people: People
) -> None:
    fork = runs.fork(
        "A:initial",
        patch={"scratch": {"letter": "dear"}},
        reason="a wrong letter",
        by=people.starter,
    )
    bulk = runs.fork_many(
        ["A:initial"], patch={"scratch": {"letter": "dear"}}, by=people.starter
    )
    kinds.advance(bulk.id)
    for model, row in (
        (RunLine, fork.lines.get()),
        (BulkFork, BulkFork.objects.get()),
        (BulkForkResult, None),
    ):
        row = row or BulkForkResult.objects.get()
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert root.get(reverse(f"{name}_changelist")).status_code == 200
        page = root.get(reverse(f"{name}_change", args=[row.pk])).content.decode()
        assert (model is BulkForkResult) or ("dear" in page and ">yes<" in page), model
        assert (
            root.post(reverse(f"{name}_change", args=[row.pk]), {}).status_code == 403
        )


def test_payloads_are_shown_unpacked_and_escaped(root: Client, run: Run) -> None:
    page = root.get(
        reverse("admin:checkpoints_run_change", args=[run.pk])
    ).content.decode()
    assert "&quot;claim_id&quot;: &quot;a &lt;b&gt; &amp; c&quot;" in page


def test_staff_see_what_their_role_lets_them_see(
    client: Client, people: People, run: Run
) -> None:
    for user, status in (
        (people.auditor, 200),
        (people.steward, 200),
        (people.reviewer, 403),
    ):
        user.is_staff = True
        user.save()
        client.force_login(user)
        assert (
            client.get(reverse("admin:checkpoints_checkpoint_changelist")).status_code
            == status
        )


def test_a_token_can_be_revoked_and_only_by_whom_it_is_given(
    root: Client, people: People
) -> None:
    text = tokens.make_token(people.starter)
    chosen = {"action": "revoke", "_selected_action": [str(ApiToken.objects.get().pk)]}
    address = reverse("admin:orchestrator_apitoken_changelist")
    people.auditor.is_staff = True
    people.auditor.save()
    other = Client()
    other.force_login(people.auditor)
    other.post(address, chosen)
    assert tokens.find_token(text) is not None
    root.post(address, chosen)
    assert tokens.find_token(text) is None


def test_payloads_show_what_cannot_be_seen_as_json_writes_it(
    root: Client, people: People
) -> None:
    graphs.register()
    odd = runs.start("gated", {"claim_id": "a\u202eb"}, key="B", by=people.starter)
    page = root.get(
        reverse("admin:checkpoints_run_change", args=[odd.pk])
    ).content.decode()
    assert "a\\u202eb" in page
    assert "\u202e" not in page


@pytest.mark.parametrize("model", SHOWN, ids=lambda m: m._meta.label)
def test_a_list_is_not_narrowed_to_a_number_that_no_database_holds(
    root: Client, model: type
) -> None:
    address = reverse(
        f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
    )  # type: ignore[attr-defined]
    related = [field.name for field in model._meta.concrete_fields if field.is_relation]  # type: ignore[attr-defined]
    for lookup in [f"{name}__{how}" for name in related for how in ("exact", "in")]:
        assert root.get(
            address, {lookup: f"1,{2**63}" if lookup.endswith("in") else str(2**63)}
        ).status_code in (
            302,
            400,
        )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (AuditLine, "RUN"),
        (AuditLine, "olive"),
        (Upload, "scan"),
        (Upload, "SHA"),
        (GraphVersion, "gated"),
        (Worker, "host-a"),
    ],
    ids=lambda parameter: getattr(parameter, "__name__", parameter),
)
def test_a_list_is_searched_by_what_people_know_a_row_by(
    root: Client, run: Run, people: People, model: type, words: str
) -> None:
    runs.cancel(run.id, by=people.starter, reason="no more")
    audit_log.record("keys_rotated", actor=people.steward)
    upload = Upload.objects.create(
        name="scan-7.pdf", stored_as="a", size=1, sha256="ab" * 32, at=timezone.now()
    )
    Upload.objects.create(
        name="other.pdf", stored_as="b", size=1, sha256="cd" * 32, at=timezone.now()
    )
    a_worker(host="host-a"), a_worker(host="elsewhere")
    GraphVersion.objects.create(
        name="unlike", version="1", first_seen_at=timezone.now()
    )
    words = {"RUN": str(run.id), "SHA": upload.sha256}.get(words, words)
    address = reverse(f"admin:checkpoints_{model._meta.model_name}_changelist")  # type: ignore[attr-defined]
    matches = root.get(address, {"q": words}).context["cl"].queryset
    everything = model.objects.count()  # type: ignore[attr-defined]
    assert 0 < matches.count() < everything
    assert (
        root.get(address, {"q": "nobody knows it"}).context["cl"].queryset.count() == 0
    )


def test_a_search_of_the_audit_log_goes_by_its_indexes(
    root: Client, people: People, run: Run
) -> None:
    """A comparison of texts would read every line: there may be millions."""
    site = admin.site._registry[AuditLine]
    with transaction.atomic():
        if (
            connection.vendor == "postgresql"
        ):  # of a table without rows it would read all of them
            connection.cursor().execute("SET LOCAL enable_seqscan = off")
        for words in (str(run.id), people.starter.username):
            matches, _ = site.get_search_results(
                HttpRequest(), AuditLine.objects.all(), words
            )
            assert " LIKE " not in str(matches.query).upper()
            assert "audit_line_" in matches.order_by().explain()
