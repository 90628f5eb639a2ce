"""No table that hangs on a run is forgotten: it is sealed, erased, put into bundles,
removed with its run and examined by a verification, or `WHY_NOT` says why not.
"""

from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import Model, UUIDField
from django.test.utils import CaptureQueriesContext

from approvals.models import (
    Decision,
    Draft,
    Notice,
    NoticeMail,
    PersonNotice,
    Receipt,
    RequestClaim,
    RequestComment,
    RequestDrafter,
    RequestReviewer,
    RequestSigner,
    RequestViewer,
    Sighting,
    Webhook,
    WebhookDelivery,
)
from checkpoints import verification
from checkpoints.bundle.tables import TABLES
from checkpoints.erasure import PLACES
from checkpoints.models import (
    AuditLine,
    BundleImport,
    Checkpoint,
    ErasedRow,
    ErasureRecord,
    Job,
    LegalHold,
    MemoryLanding,
    MemoryTrace,
    Pin,
    RemovedKey,
    Run,
    RunKey,
    TaskFigure,
    UploadReference,
)
from checkpoints.retention import kept_points, whole_runs
from orchestrator.models import AnswerReference, BulkForkResult
from tests.support.rows import a_request, a_run

FLOORS = ("checkpoints", "approvals", "orchestrator")
KEYED_BY_RUN = {RunKey}
"""The tables whose own key is the id of a run, which no type tells."""

NO_VALUE = "holds no value of a run"
STAYS_WITH_AUDIT = "stays: the audit log records it for ever"
WHY_NOT: dict[str, dict[Any, str]] = {
    "sealed": {
        AnswerReference: "an index of kept answers, which nobody relies on",
        BulkForkResult: "a report: its forks are proved by their own rows",
        Job: "its facts have a seal, `facts_seal`; the rest is the queue's",
        Notice: "says that something happened; all else is read from sealed rows",
        PersonNotice: "says that something happened; all else is read from sealed rows",
        WebhookDelivery: "a report of what was sent",
        NoticeMail: "a report of what was sent",
        MemoryLanding: "compared with the sealed journal of its task",
        RemovedKey: "only refuses a key once more",
        RequestDrafter: "a copy of whose sealed drafts there are, for lists",
        RequestReviewer: "a copy of the policy in the sealed request, for inboxes",
        RequestSigner: "a copy of whose sealed decisions there are, for lists",
        RequestViewer: "rights are judged by the run, whatever a list has",
        RunKey: "authenticated by the key under which it is wrapped",
        Sighting: "gives no right: a signature has to be made all the same",
        UploadReference: "a copy of what the sealed input names",
    },
    "erased": {
        AnswerReference: NO_VALUE,
        AuditLine: NO_VALUE,
        BulkForkResult: "by the sweep of bulk forks",
        BundleImport: NO_VALUE,
        Draft: "deleted by the sweep of drafts",
        ErasedRow: NO_VALUE,
        ErasureRecord: "its words are cleared when the erasure ends",
        Job: "by the sweep of jobs",
        LegalHold: NO_VALUE,
        MemoryLanding: NO_VALUE,
        Notice: NO_VALUE,
        PersonNotice: NO_VALUE,
        Webhook: NO_VALUE,
        WebhookDelivery: NO_VALUE,
        NoticeMail: NO_VALUE,
        Pin: NO_VALUE,
        RemovedKey: NO_VALUE,
        RequestClaim: NO_VALUE,
        RequestDrafter: NO_VALUE,
        RequestReviewer: NO_VALUE,
        RequestSigner: NO_VALUE,
        RequestViewer: NO_VALUE,
        RunKey: "destroyed when the erasure of a whole run ends",
        Sighting: NO_VALUE,
        TaskFigure: NO_VALUE,
        UploadReference: "deleted by the sweep of uploaded files",
    },
    "bundled": {
        AnswerReference: "belongs to this installation",
        AuditLine: "belongs to this installation",
        BulkForkResult: "belongs to this installation",
        BundleImport: "records where a run comes from, anew at each import",
        Draft: "nobody has signed it",
        ErasedRow: "in the manifest and beside each row, as a note",
        ErasureRecord: "in the manifest",
        Job: "work of this installation",
        LegalHold: "binds this installation",
        MemoryTrace: "memory belongs to this installation",
        Notice: "work of this installation",
        PersonNotice: "work of this installation",
        Webhook: "sends from this installation",
        WebhookDelivery: "work of this installation",
        NoticeMail: "work of this installation",
        Pin: "binds this installation",
        RemovedKey: "a run that is not there any more has no bundle",
        RequestClaim: "says who is at work in this installation",
        RequestDrafter: "made from the drafts",
        RequestReviewer: "made from the policy of the request",
        RequestSigner: "made from the decisions",
        RequestViewer: "made from the reviewers and the run",
        RunKey: "in the manifest, wrapped",
        Sighting: "of people of this installation, who sign here",
        UploadReference: "files stay where they were uploaded",
    },
    "removed": {
        AnswerReference: "goes with the kept answer, after a week",
        AuditLine: STAYS_WITH_AUDIT,
        BulkForkResult: "goes with its bulk fork, by its age",
        BundleImport: "a run that was imported is not removed",
        ErasedRow: "stays with its record",
        ErasureRecord: "stays for ever: it says what was erased, by whom and why",
        Job: "swept by its age",
        LegalHold: STAYS_WITH_AUDIT,
        MemoryTrace: "memory belongs to the installation, and stays",
        Notice: "swept by its age",
        PersonNotice: "swept by its age",
        WebhookDelivery: "goes with its notice",
        NoticeMail: "goes with its notice",
        Pin: STAYS_WITH_AUDIT,
        Receipt: "is of a request, which keeps its run",
        RemovedKey: "written when the run is removed",
        RequestClaim: "goes with its request, which keeps its run",
        RequestComment: "is of a request, which keeps its run",
        RequestDrafter: "goes with its request, which keeps its run",
        RequestReviewer: "goes with its request, which keeps its run",
        RequestSigner: "goes with its request, which keeps its run",
        RequestViewer: "goes with its request, which keeps its run",
        RunKey: "with the run, or stays to open its archived bundle",
    },
    "examined": {
        AnswerReference: "nothing relies on it",
        BulkForkResult: "nothing relies on it",
        Draft: "verified when it is read",
        Job: "its facts are verified when it begins",
        Notice: "nothing relies on it",
        PersonNotice: "nothing relies on it",
        Webhook: "verified before anything is sent to it",
        WebhookDelivery: "nothing relies on it",
        NoticeMail: "nothing relies on it",
        RemovedKey: "there is no run any more",
        RequestClaim: "verified when somebody signs or takes the request",
        RequestDrafter: "nothing relies on it",
        RequestSigner: "nothing relies on it",
        RunKey: "payloads that do not open are faults",
        Sighting: "only delays a signature; no signature is proved by it",
        UploadReference: "the files that the input names are examined",
    },
}
"""Part of a table's care -> the tables without it, and the reason."""


def hangs_on_run(model: Any) -> bool:
    """Return whether the rows of a table belong to runs: it names a run or one of its
    rows by an id, or refers to a table that does.
    """
    if model is Run or model in KEYED_BY_RUN:
        return True
    for field in model._meta.concrete_fields:
        if field.is_relation:
            related = field.related_model
            if related._meta.app_label in FLOORS and hangs_on_run(related):
                return True
        elif isinstance(field, UUIDField) and not field.primary_key:
            return True
    return False


RUN_TABLES: set[type[Model]] = {
    model
    for model in apps.get_models(include_auto_created=True)
    if model._meta.app_label in FLOORS and hangs_on_run(model)
} - {Run}


def examined_tables() -> set[type[Model]]:
    """Return the tables that a verification of a run reads."""
    run = a_run()
    a_request(run, "user:ann")
    record = ErasureRecord.objects.create(run=run.id, at=run.created_at)
    Run.objects.filter(id=run.id).update(erasure=record.id)
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert verification.verify_run(run.id)
    statements = " ".join(query["sql"] for query in captured)
    return {model for model in RUN_TABLES if f'"{model._meta.db_table}"' in statements}


def cared_for(part: str) -> set[Any]:
    """Return the tables that have this part."""
    if part == "sealed":
        return {model for model in RUN_TABLES if hasattr(model, "seal")}
    if part == "erased":
        # Checkpoints come last, with the bytes in payload backends.
        return {place.model for place in PLACES} | {Checkpoint}
    if part == "bundled":
        return {table.model for table in TABLES.values()}
    if part == "removed":
        # The rows of the others keep their run.
        return {*whole_runs.PARTS, *kept_points.REFERENCES}
    return examined_tables()


@pytest.mark.django_db
@pytest.mark.parametrize("part", WHY_NOT)
def test_a_table_that_hangs_on_a_run_is_cared_for_or_it_is_said_why_not(
    part: str,
) -> None:
    covered = cared_for(part)
    assert covered <= RUN_TABLES
    forgotten = RUN_TABLES - covered - WHY_NOT[part].keys()
    assert sorted(model.__name__ for model in forgotten) == [], f"not {part}"
    outdated = WHY_NOT[part].keys() & covered
    assert sorted(model.__name__ for model in outdated) == [], f"{part} after all"
    assert WHY_NOT[part].keys() <= RUN_TABLES


def test_a_decision_hangs_on_a_run_without_a_foreign_key_to_it() -> None:
    assert {Decision, RequestReviewer, RunKey} <= RUN_TABLES
