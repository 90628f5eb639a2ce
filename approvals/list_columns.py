"""Triggers on PostgreSQL and SQLite that keep what lists are read by equal to the rows
that it is copied from, whoever changes these: the columns of `RequestReviewer`, and the
rows of `RequestDrafter`, `RequestSigner` and `RequestViewer`. They also write the
`Notice` of each change that people and services hear of, in the transaction of that
change.

The first `MOST_SINGLY` principals of a run have a row of `RequestViewer` for each of its
requests, and the run has one for those who are named later, so that a run that names
other people in each request does not grow with the square. A principal stands in at most
`MOST_RUNS` runs that way, so that a page reads few lists; in others it has rows of its
own again.

They are installed after every migrate in which they are missing, because SQLite drops
them when it rebuilds a table, or in which PostgreSQL has other texts; the copies are
then rebuilt where they differ. A system check watches them.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Warning
from django.db import OperationalError, connection, transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Value, When

from approvals.models import (
    BY_DEADLINE,
    ApprovalRequest,
    Decision,
    Draft,
    Notice,
    RequestDrafter,
    RequestReviewer,
    RequestSigner,
    RequestStatus,
    RequestViewer,
    Webhook,
)
from checkpoints.core.status import CLOSED_TO_DECISIONS, ENDS, STOPPED, Status
from checkpoints.models import ErasureRecord, Job, PendingWrite, Run, RunLine
from checkpoints.models.run_line import Travel

TRIGGERS = {
    "drafter_removed": Draft,
    "drafter_saved": Draft,
    "notice_request_changed": ApprovalRequest,
    "notice_request_opened": ApprovalRequest,
    "notice_run_stopped": Run,
    "notice_values_erased": ErasureRecord,
    "notice_write_rebased": PendingWrite,
    "reviewer_named": RequestReviewer,
    "reviewer_request_changed": ApprovalRequest,
    "reviewer_run_changed": Run,
    "reviewer_run_status": Run,
    "signer_decided": Decision,
    "signer_write_revised": PendingWrite,
    "viewer_request_opened": ApprovalRequest,
}
"""Name of each trigger -> the table whose changes it follows."""
SEND_NOTICES = "send_notices"
"""The kind and the name of the standing job that sends notices."""
OPENED = "request.opened"
CAME_BACK = "request.came_back"
SETTLED = "request.settled"
EXPIRED = "request.expired"
WITHDRAWN = "request.withdrawn"
STOPPED_RUN = "run.stopped"
OF_RUN = "run."
VALUES_ERASED = "values.erased"
"""The events of the notices that the triggers write. `OF_RUN` is the beginning of those
that say with which status a run ended or stopped.
"""
RUN_EVENTS = tuple(f"{OF_RUN}{status}" for status in Status if status in ENDS | STOPPED)
FOR_WEBHOOKS = frozenset({WITHDRAWN, *RUN_EVENTS, VALUES_ERASED})
"""The events of which neither mail nor the console says anything."""
APPS = {model._meta.app_label for model in TRIGGERS.values()}
NOW = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "postgresql": "clock_timestamp()",
}
TOGETHER_SECONDS = 0.5
"""How long a notice waits for others, so that one turn of the job passes on a whole
burst.
"""
SOON = {
    "sqlite": f"strftime('%Y-%m-%d %H:%M:%f', 'now', '+{TOGETHER_SECONDS} seconds')",
    "postgresql": f"clock_timestamp() + interval '{TOGETHER_SECONDS} seconds'",
}
EXISTS = {
    "sqlite": """
        SELECT name FROM sqlite_master
        WHERE type = 'trigger' AND name = %s AND tbl_name = trim(%s, '"')
    """,
    # Another schema may have one of that name, and one may be turned off.
    "postgresql": """
        SELECT function.prosrc
        FROM pg_trigger existing JOIN pg_proc function ON function.oid = existing.tgfoid
        WHERE tgname = %s AND tgrelid = to_regclass(%s) AND tgenabled <> 'D'
    """,
}
"""The query that has a row if and only if there is a trigger of a name on a table; on
PostgreSQL with the text of its function.
"""
STARTER = "starter:"
"""With the id of an account: the principal of `RequestViewer` who started a run."""
RUN = "run:"
"""With the id of a run: the principal of `RequestViewer` for those who see the requests
of the run by it.
"""
MOST_SINGLY = 16
"""The principals of a run for whom each of its requests has a row."""
MOST_RUNS = 100
"""The most runs whose requests a principal sees by the run."""
ATTEMPTS = 5
IS_NOT = {
    "sqlite": "IS NOT",
    "postgresql": "IS DISTINCT FROM",
}
NAMES = {
    # A row that was changed may hold anything. It is verified before it is sent to.
    "sqlite": """
        CASE WHEN json_valid(webhook.{list}) THEN
            webhook.{list} = '[]' OR EXISTS (
                SELECT 1 FROM json_each(webhook.{list}) named
                WHERE named.value = {name}
            )
        ELSE TRUE END
    """,
    "postgresql": "(webhook.{list} = '[]' OR webhook.{list} ? ({name}))",
}
"""Whether a list that a person chose for a webhook names this, or names nothing."""


def _table(model: Any) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def _names() -> dict[str, str]:
    """Return the names and texts that the statements are made of."""
    closed = ", ".join(f"'{status}'" for status in sorted(CLOSED_TO_DECISIONS))
    names = {
        "reviewers": _table(RequestReviewer),
        "requests": _table(ApprovalRequest),
        "runs": _table(Run),
        "decisions": _table(Decision),
        "drafts": _table(Draft),
        "drafters": _table(RequestDrafter),
        "signers": _table(RequestSigner),
        "viewers": _table(RequestViewer),
        "pending": _table(PendingWrite),
        "by_deadline": f"'{BY_DEADLINE}'",
        "starter": f"'{STARTER}'",
        "of_run": f"'{RUN}'",
        "open": f"'{RequestStatus.OPEN}'",
        "closed": f"({closed})",
        "now": NOW[connection.vendor],
        "is_not": IS_NOT[connection.vendor],
        **_names_of_notices(),
    }
    names["waits"] = "(request.status = {open} AND run.status NOT IN {closed})".format(
        **names
    )
    names["newest_revision"] = NEWEST_REVISION.format(**names)
    names["expired"] = HAS_EXPIRED.format(
        is_expired=f"'{RequestStatus.EXPIRED}'", **names
    )
    names["behind"] = BEHIND.format(**names)
    names["request_differs"] = " OR ".join(
        f"OLD.{column} {names['is_not']} NEW.{column}"
        for column in ("status", "opened_at", "deadline")
    )
    names["run_differs"] = (
        "OLD.created_at {is_not} NEW.created_at "
        "OR (OLD.status IN {closed}) {is_not} (NEW.status IN {closed})"
    ).format(**names)
    for name, drafts in DRAFTS[connection.vendor].items():
        names[name] = DRAFTERS.format(of_drafts=drafts.format(**names), **names)
    names["by_run"] = BY_RUN.format(
        singly=MOST_SINGLY - 1, most_runs=MOST_RUNS - 1, **names
    )
    names["expected"] = EXPECTED_VIEWERS.format(**names)
    names["unexpected"] = UNEXPECTED_VIEWER.format(**names)
    return names


HAS_EXPIRED = """
    (request.status = {is_expired} OR (
        request.status <> {open} AND request.deadline IS NOT NULL AND EXISTS (
            SELECT 1 FROM {decisions} decided
            WHERE decided.request_id = request.id AND decided.by_id IS NULL
                AND decided.receipt_id IS NULL AND decided.by_name = {by_deadline}
                AND decided.revision >= {newest_revision}
        )
    ))
"""
"""Whether the deadline of a request closed it, or decided what was left open, and people
have not been asked again since.
"""
NEWEST_REVISION = """
    (SELECT max(revised.revision) FROM {pending} revised
    WHERE revised.write = decided.write)
"""
"""The newest revision of the write of a decision `decided`."""
BEHIND = """
    (SELECT nullif(count(*), 0) FROM (
        SELECT 1 FROM {decisions} decided
        WHERE decided.request_id = signer.request_id AND decided.by_id = signer.by_id
        GROUP BY decided.write
        HAVING max(decided.revision) < {newest_revision}
    ) AS changed_since)
"""
"""How many writes that a signer decided have changed since; NULL for none."""
DRAFTERS = """
    SELECT request.id AS request_id, draft.by_id AS by_id, request.run_id AS run,
        request.opened_at AS opened_at, request.status = {open} AS is_open,
        count(*) AS drafts
    FROM {of_drafts} AS draft
    JOIN {pending} proposed ON proposed.write = draft.write AND proposed.revision = 1
    JOIN {requests} request ON request.run_id = proposed.run_id
        AND request.line = proposed.line AND request.node = proposed.node
        AND request.visit = proposed.visit AND request."index" = proposed."index"
    GROUP BY request.id, draft.by_id
"""
"""The rows of drafters that these drafts make."""
DRAFTS = {
    "sqlite": {
        "drafters_of_all": "{drafts}",
        "drafters_saved": "(SELECT NEW.by_id AS by_id, NEW.write AS write)",
        "drafters_removed": "(SELECT OLD.by_id AS by_id, OLD.write AS write)",
    },
    "postgresql": {
        "drafters_of_all": "{drafts}",
        "drafters_saved": "saved",
        "drafters_removed": "removed",
    },
}
"""By vendor, the drafts that stand in each text of `DRAFTERS`."""
ADD_DRAFTERS = """
        INSERT INTO {drafters} (request_id, by_id, run, opened_at, is_open, drafts)
        {drafters_saved}
        ON CONFLICT (request_id, by_id)
        DO UPDATE SET drafts = {drafters}.drafts + excluded.drafts;
"""
TAKE_DRAFTERS = """
        UPDATE {drafters} SET drafts = {drafters}.drafts - gone.drafts
        FROM ({drafters_removed}) AS gone
        WHERE {drafters}.request_id = gone.request_id
            AND {drafters}.by_id = gone.by_id;
"""
BY_RUN = """
    EXISTS (
        SELECT 1 FROM {reviewers} other
        WHERE other.run = named.run AND other.by_run = FALSE
            AND other.run_status IS NOT NULL AND other.id <> named.id
        LIMIT 1 OFFSET {singly}
    ) AND NOT EXISTS (
        SELECT 1 FROM {reviewers} other
        WHERE other.principal = named.principal AND other.by_run
            AND other.id <> named.id
        LIMIT 1 OFFSET {most_runs}
    )
"""
"""Whether the first row `named` of a run with a principal stands for all its requests."""
EXPECTED_VIEWERS = """
    SELECT request.id AS request_id, named.principal AS principal,
        request.graph AS graph, request.opened_at AS opened_at
    FROM {reviewers} named JOIN {requests} request ON request.run_id = named.run
    WHERE named.run_status IS NOT NULL AND named.by_run = FALSE
    UNION ALL
    SELECT request.id, {of_run} || request.run_id, request.graph, request.opened_at
    FROM {requests} request
    WHERE request.run_id IN (SELECT named.run FROM {reviewers} named WHERE named.by_run)
    UNION ALL
    SELECT request.id, {starter} || run.started_by_id, request.graph, request.opened_at
    FROM {requests} request JOIN {runs} run ON run.id = request.run_id
    WHERE run.started_by_id IS NOT NULL
"""
"""The rows of viewers that there should be."""
UNEXPECTED_VIEWER = """
    NOT EXISTS (
        SELECT 1 FROM {requests} request
        JOIN {reviewers} named ON named.run = request.run_id
        WHERE request.id = {viewers}.request_id
            AND named.principal = {viewers}.principal
            AND named.run_status IS NOT NULL AND named.by_run = FALSE
    ) AND NOT EXISTS (
        SELECT 1 FROM {requests} request JOIN {runs} run ON run.id = request.run_id
        WHERE request.id = {viewers}.request_id
            AND {viewers}.principal = {starter} || run.started_by_id
    ) AND NOT EXISTS (
        SELECT 1 FROM {requests} request
        JOIN {reviewers} named ON named.run = request.run_id
        WHERE request.id = {viewers}.request_id
            AND {viewers}.principal = {of_run} || request.run_id
            AND named.run_status IS NOT NULL AND named.by_run = TRUE
    )
"""
"""The condition of viewer rows that should not exist."""


def _is_wanted(event: str) -> str:
    """Return the condition that a webhook is to hear of this event of a run `NEW`: so
    that without such a webhook no notice is written.
    """
    names = NAMES[connection.vendor]
    wants = "{events} AND {graphs}".format(
        events=names.format(list="events", name=event),
        graphs=names.format(list="graphs", name="run.graph"),
    )
    # Two conditions, so that the callbacks of other approvals are not looked at.
    return f"""
        (EXISTS (SELECT 1 FROM {_table(Webhook)} webhook
            WHERE webhook.run IS NULL AND {wants})
        OR EXISTS (SELECT 1 FROM {_table(Webhook)} webhook
            WHERE webhook.run = run.id AND {wants}))
    """  # noqa: S608


def _names_of_run_notices() -> dict[str, str]:
    """Return the texts of the statements that write notices for webhooks alone."""
    event = f"'{OF_RUN}' || NEW.status"
    # A replay has no outside.
    ended = f"""
        SELECT {event}, run.id, run.status, {NOW[connection.vendor]}
        FROM {_table(Run)} run
        WHERE run.id = NEW.id AND NOT run.imported AND {_is_wanted(event)}
            AND NOT EXISTS (
                SELECT 1 FROM {_table(RunLine)} line
                WHERE line.run_id = run.id AND line.number = 1
                    AND line.travel = '{Travel.REPLAY}'
            )
    """  # noqa: S608
    erased = f"""
        SELECT '{VALUES_ERASED}', run.id, '', {NOW[connection.vendor]}
        FROM {_table(Run)} run
        WHERE run.id = NEW.run AND NOT run.imported
            AND {_is_wanted(f"'{VALUES_ERASED}'")}
    """  # noqa: S608
    return {"ended_run": ended, "erased_values": erased}


def _names_of_notices() -> dict[str, str]:
    """Return the names and texts of the statements that write notices."""
    stops = ", ".join(f"'{status}'" for status in sorted(ENDS | STOPPED))
    events = {
        RequestStatus.OPEN: CAME_BACK,
        RequestStatus.SETTLED: SETTLED,
        RequestStatus.EXPIRED: EXPIRED,
        RequestStatus.WITHDRAWN: WITHDRAWN,
    }
    cases = "".join(
        f" WHEN '{status}' THEN '{name}'" for status, name in events.items()
    )
    changes = ", ".join(f"'{status}'" for status in events)
    names = {
        "notices": _table(Notice),
        "jobs": _table(Job),
        "stops": f"({stops})",
        "noticed": f"({changes})",
        "event": f"CASE NEW.status{cases} END",
        "opened_event": f"'{OPENED}'",
        "came_back_event": f"'{CAME_BACK}'",
        "stopped_event": f"'{STOPPED_RUN}'",
        "applied": f"'{RequestStatus.APPLIED}'",
        "opened": f"'{RequestStatus.OPEN}'",
        "send_notices": f"'{SEND_NOTICES}'",
        "now": NOW[connection.vendor],
        "soon": SOON[connection.vendor],
        "erasures": _table(ErasureRecord),
        **_names_of_run_notices(),
    }
    # A job that is paused, or waits after a failure, is not woken.
    names["sleeps"] = (
        "name = {send_notices} AND status = 'queued' "
        "AND status IN ('queued', 'running') AND attempts = 0 "
        "AND due_at > {soon} AND due_at < '8999-01-01'"
    ).format(**names)
    # A trigger of SQLite cannot say whether its first statement inserted a row.
    wake = (
        "UPDATE {jobs} SET due_at = {soon} WHERE {sleeps} "
        "AND EXISTS (SELECT 1 FROM {notices} WHERE passed_on_at IS NULL);"
    )
    names["wake"] = wake.format(**names)
    # Each open request that had been signed hears of it once.
    names["is_open_again"] = (  # noqa: S608
        "request.run_id = NEW.run_id AND request.line = NEW.line "
        "AND request.node = NEW.node AND request.visit = NEW.visit "
        'AND request."index" = NEW."index" AND request.status = {opened} '
        "AND EXISTS (SELECT 1 FROM {decisions} decision "
        "WHERE decision.write = NEW.write AND decision.by_id IS NOT NULL) "
        "AND NOT EXISTS (SELECT 1 FROM {notices} waiting "
        "WHERE waiting.passed_on_at IS NULL AND waiting.request = request.id "
        "AND waiting.event = {came_back_event})"
    ).format(decisions=_table(Decision), **names)
    return names


SQLITE = (
    """
    CREATE TRIGGER reviewer_named AFTER INSERT ON {reviewers} BEGIN
        UPDATE {reviewers}
        SET (run, run_created_at, graph, opened_at, deadline, waits, expired, changes,
            changed_at)
        = (
            SELECT request.run_id, run.created_at, request.graph, request.opened_at,
                request.deadline, {waits}, {expired}, 0, {now}
            FROM {requests} request JOIN {runs} run ON run.id = request.run_id
            WHERE request.id = NEW.request_id
        )
        WHERE id = NEW.id;
        UPDATE {reviewers}
        SET (run_graph, run_status) = (
            SELECT run.graph, run.status FROM {runs} run
            WHERE run.id = {reviewers}.run AND NOT EXISTS (
                SELECT 1 FROM {reviewers} other
                WHERE other.run = run.id AND other.principal = NEW.principal
                    AND other.run_status IS NOT NULL AND other.id <> NEW.id
            )
        )
        WHERE id = NEW.id;
        UPDATE {reviewers}
        SET by_run = run_status IS NOT NULL AND (
            SELECT {by_run} FROM {reviewers} named WHERE named.id = NEW.id
        )
        WHERE id = NEW.id;
        INSERT OR IGNORE INTO {viewers} (request_id, principal, graph, opened_at)
        SELECT request.id, named.principal, request.graph, request.opened_at
        FROM {reviewers} named JOIN {requests} request ON request.run_id = named.run
        WHERE named.id = NEW.id AND named.run_status IS NOT NULL
            AND named.by_run = FALSE;
        INSERT OR IGNORE INTO {viewers} (request_id, principal, graph, opened_at)
        SELECT request.id, {of_run} || named.run, request.graph, request.opened_at
        FROM {reviewers} named JOIN {requests} request ON request.run_id = named.run
        WHERE named.id = NEW.id AND named.by_run AND NOT EXISTS (
            SELECT 1 FROM {viewers} listed WHERE listed.principal = {of_run} || named.run
        );
    END
    """,
    """
    CREATE TRIGGER viewer_request_opened AFTER INSERT ON {requests} BEGIN
        INSERT OR IGNORE INTO {viewers} (request_id, principal, graph, opened_at)
        SELECT NEW.id, reviewer.principal, NEW.graph, NEW.opened_at
        FROM {reviewers} reviewer
        WHERE reviewer.run = NEW.run_id AND reviewer.run_status IS NOT NULL
            AND reviewer.by_run = FALSE;
        INSERT OR IGNORE INTO {viewers} (request_id, principal, graph, opened_at)
        SELECT NEW.id, {of_run} || NEW.run_id, NEW.graph, NEW.opened_at
        WHERE EXISTS (
            SELECT 1 FROM {viewers} listed
            WHERE listed.principal = {of_run} || NEW.run_id
        );
        INSERT OR IGNORE INTO {viewers} (request_id, principal, graph, opened_at)
        SELECT NEW.id, {starter} || run.started_by_id, NEW.graph, NEW.opened_at
        FROM {runs} run WHERE run.id = NEW.run_id AND run.started_by_id IS NOT NULL;
    END
    """,
    """
    CREATE TRIGGER reviewer_run_status AFTER UPDATE OF status ON {runs}
    WHEN OLD.status <> NEW.status
    BEGIN
        UPDATE {reviewers} SET run_status = NEW.status
        WHERE run = NEW.id AND run_status IS NOT NULL;
    END
    """,
    """
    CREATE TRIGGER reviewer_request_changed
    AFTER UPDATE OF status, opened_at, deadline ON {requests}
    WHEN {request_differs}
    BEGIN
        UPDATE {reviewers}
        SET (opened_at, deadline, waits, expired, changes, changed_at) = (
            SELECT request.opened_at, request.deadline, {waits}, {expired}, changes + 1,
                {now}
            FROM {requests} request JOIN {runs} run ON run.id = request.run_id
            WHERE request.id = NEW.id
        )
        WHERE request_id = NEW.id;
        UPDATE {signers}
        SET opened_at = NEW.opened_at, is_open = (NEW.status = {open})
        WHERE request_id = NEW.id;
        UPDATE {drafters}
        SET opened_at = NEW.opened_at, is_open = (NEW.status = {open})
        WHERE request_id = NEW.id;
        UPDATE {viewers} SET opened_at = NEW.opened_at
        WHERE OLD.opened_at <> NEW.opened_at AND request_id = NEW.id;
    END
    """,
    """
    CREATE TRIGGER reviewer_run_changed
    AFTER UPDATE OF status, created_at ON {runs}
    WHEN {run_differs}
    BEGIN
        UPDATE {reviewers}
        SET waits = NEW.status NOT IN {closed}, changes = changes + 1, changed_at = {now}
        WHERE run = NEW.id AND request_id IN (
            SELECT id FROM {requests} WHERE run_id = NEW.id AND status = {open}
        );
        UPDATE {reviewers} SET run_created_at = NEW.created_at
        WHERE run = NEW.id AND run_created_at {is_not} NEW.created_at;
    END
    """,
    """
    CREATE TRIGGER signer_decided AFTER INSERT ON {decisions}
    WHEN NEW.request_id IS NOT NULL
    BEGIN
        INSERT OR IGNORE INTO {signers} (request_id, by_id, run, opened_at, is_open)
        SELECT request.id, NEW.by_id, request.run_id, request.opened_at,
            request.status = {open}
        FROM {requests} request
        WHERE request.id = NEW.request_id AND NEW.by_id IS NOT NULL;
        UPDATE {reviewers} SET changes = changes + 1, changed_at = {now}
        WHERE request_id = NEW.request_id;
        UPDATE {signers} SET behind = nullif(behind - 1, 0)
        WHERE request_id = NEW.request_id AND by_id = NEW.by_id AND behind IS NOT NULL
            AND EXISTS (
                SELECT 1 FROM {decisions} decided
                WHERE decided.request_id = NEW.request_id
                    AND decided.write = NEW.write AND decided.by_id = NEW.by_id
                    AND decided.event_seq < NEW.event_seq
                GROUP BY decided.write
                HAVING max(decided.revision) < {newest_revision}
                    AND NEW.revision >= {newest_revision}
            );
    END
    """,
    """
    CREATE TRIGGER signer_write_revised AFTER INSERT ON {pending}
    WHEN NEW.revision > 1
    BEGIN
        UPDATE {signers} SET behind = coalesce(behind, 0) + 1
        WHERE id IN (
            SELECT signer.id
            FROM {decisions} decided JOIN {signers} signer
                ON signer.request_id = decided.request_id
                AND signer.by_id = decided.by_id
            WHERE decided.write = NEW.write
            GROUP BY signer.id HAVING max(decided.revision) = NEW.revision - 1
        );
    END
    """,
    f"""
    CREATE TRIGGER drafter_saved AFTER INSERT ON {{drafts}} BEGIN {ADD_DRAFTERS} END
    """,
    f"""
    CREATE TRIGGER drafter_removed AFTER DELETE ON {{drafts}} BEGIN {TAKE_DRAFTERS} END
    """,
    """
    CREATE TRIGGER notice_request_opened AFTER INSERT ON {requests}
    WHEN NEW.status = {open}
    BEGIN
        INSERT INTO {notices} (event, run, request, outcome, at)
        VALUES ({opened_event}, NEW.run_id, NEW.id, '', {now});
        {wake}
    END
    """,
    """
    CREATE TRIGGER notice_request_changed AFTER UPDATE OF status ON {requests}
    WHEN OLD.status <> NEW.status AND NEW.status IN {noticed}
    BEGIN
        INSERT INTO {notices} (event, run, request, outcome, at)
        VALUES ({event}, NEW.run_id, NEW.id, NEW.outcome, {now});
        {wake}
    END
    """,
    """
    CREATE TRIGGER notice_write_rebased AFTER INSERT ON {pending}
    WHEN NEW.reason = 'rebase'
    BEGIN
        INSERT INTO {notices} (event, run, request, outcome, at)
        SELECT {came_back_event}, request.run_id, request.id, '', {now}
        FROM {requests} request WHERE {is_open_again};
        {wake}
    END
    """,
    """
    CREATE TRIGGER notice_run_stopped AFTER UPDATE OF status ON {runs}
    WHEN OLD.status <> NEW.status AND NEW.status IN {stops}
    BEGIN
        INSERT INTO {notices} (event, run, outcome, at)
        SELECT {stopped_event}, NEW.id, NEW.status, {now}
        WHERE EXISTS (
            SELECT 1 FROM {requests} WHERE run_id = NEW.id AND status = {applied}
        );
        INSERT INTO {notices} (event, run, outcome, at) {ended_run};
        {wake}
    END
    """,
    """
    CREATE TRIGGER notice_values_erased AFTER UPDATE OF ended_at ON {erasures}
    WHEN OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL
    BEGIN
        INSERT INTO {notices} (event, run, outcome, at) {erased_values};
        {wake}
    END
    """,
)

POSTGRESQL = (
    """
    CREATE OR REPLACE FUNCTION countersign_reviewer_named()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        SELECT request.run_id, run.created_at, request.graph, request.opened_at,
            request.deadline, {waits}, {expired}, 0, {now}
        INTO NEW.run, NEW.run_created_at, NEW.graph, NEW.opened_at,
            NEW.deadline, NEW.waits, NEW.expired, NEW.changes, NEW.changed_at
        FROM {requests} request JOIN {runs} run ON run.id = request.run_id
        WHERE request.id = NEW.request_id;
        SELECT run.graph, run.status INTO NEW.run_graph, NEW.run_status
        FROM {runs} run
        WHERE run.id = NEW.run AND NOT EXISTS (
            SELECT 1 FROM {reviewers} other
            WHERE other.run = run.id AND other.principal = NEW.principal
                AND other.run_status IS NOT NULL
        );
        NEW.by_run := NEW.run_status IS NOT NULL AND (
            SELECT {by_run}
            FROM (SELECT NEW.id AS id, NEW.run AS run, NEW.principal AS principal) named
        );
        IF NEW.by_run AND NOT EXISTS (
            SELECT 1 FROM {viewers} listed WHERE listed.principal = {of_run} || NEW.run
        ) THEN
            INSERT INTO {viewers} (request_id, principal, graph, opened_at)
            SELECT request.id, {of_run} || NEW.run, request.graph, request.opened_at
            FROM {requests} request WHERE request.run_id = NEW.run
            ON CONFLICT DO NOTHING;
        ELSIF NEW.run_status IS NOT NULL AND NOT NEW.by_run THEN
            INSERT INTO {viewers} (request_id, principal, graph, opened_at)
            SELECT request.id, NEW.principal, request.graph, request.opened_at
            FROM {requests} request WHERE request.run_id = NEW.run
            ON CONFLICT DO NOTHING;
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_reviewer_run_status()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE {reviewers} SET run_status = NEW.status
        WHERE run = NEW.id AND run_status IS NOT NULL;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER reviewer_run_status AFTER UPDATE OF status ON {runs}
    FOR EACH ROW WHEN (OLD.status <> NEW.status)
    EXECUTE FUNCTION countersign_reviewer_run_status()
    """,
    """
    CREATE OR REPLACE TRIGGER reviewer_named BEFORE INSERT ON {reviewers}
    FOR EACH ROW EXECUTE FUNCTION countersign_reviewer_named()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_viewer_request_opened()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {viewers} (request_id, principal, graph, opened_at)
        SELECT opened.id, reviewer.principal, opened.graph, opened.opened_at
        FROM opened JOIN {reviewers} reviewer ON reviewer.run = opened.run_id
        WHERE reviewer.run_status IS NOT NULL AND reviewer.by_run = FALSE
        UNION ALL
        SELECT opened.id, {of_run} || opened.run_id, opened.graph, opened.opened_at
        FROM opened WHERE EXISTS (
            SELECT 1 FROM {viewers} listed
            WHERE listed.principal = {of_run} || opened.run_id
        )
        UNION ALL
        SELECT opened.id, {starter} || run.started_by_id, opened.graph,
            opened.opened_at
        FROM opened JOIN {runs} run ON run.id = opened.run_id
        WHERE run.started_by_id IS NOT NULL
        ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER viewer_request_opened AFTER INSERT ON {requests}
    REFERENCING NEW TABLE AS opened
    FOR EACH STATEMENT EXECUTE FUNCTION countersign_viewer_request_opened()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_reviewer_request_changed()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE {reviewers} reviewer
        SET opened_at = request.opened_at, deadline = request.deadline,
            waits = {waits}, expired = {expired}, changes = reviewer.changes + 1,
            changed_at = {now}
        FROM {requests} request JOIN {runs} run ON run.id = request.run_id
        WHERE reviewer.request_id = NEW.id AND request.id = NEW.id;
        UPDATE {signers}
        SET opened_at = NEW.opened_at, is_open = (NEW.status = {open})
        WHERE request_id = NEW.id;
        UPDATE {drafters}
        SET opened_at = NEW.opened_at, is_open = (NEW.status = {open})
        WHERE request_id = NEW.id;
        UPDATE {viewers} SET opened_at = NEW.opened_at
        WHERE OLD.opened_at <> NEW.opened_at AND request_id = NEW.id;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER reviewer_request_changed
    AFTER UPDATE OF status, opened_at, deadline ON {requests}
    FOR EACH ROW WHEN ({request_differs})
    EXECUTE FUNCTION countersign_reviewer_request_changed()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_reviewer_run_changed()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE {reviewers} reviewer
        SET waits = NEW.status NOT IN {closed}, changes = reviewer.changes + 1,
            changed_at = {now}
        FROM {requests} request
        WHERE reviewer.run = NEW.id AND request.id = reviewer.request_id
            AND request.run_id = NEW.id AND request.status = {open};
        UPDATE {reviewers} SET run_created_at = NEW.created_at
        WHERE run = NEW.id AND run_created_at {is_not} NEW.created_at;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER reviewer_run_changed
    AFTER UPDATE OF status, created_at ON {runs}
    FOR EACH ROW WHEN ({run_differs})
    EXECUTE FUNCTION countersign_reviewer_run_changed()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_signer_decided()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {signers} (request_id, by_id, run, opened_at, is_open)
        SELECT DISTINCT request.id, made.by_id, request.run_id, request.opened_at,
            request.status = {open}
        FROM made JOIN {requests} request ON request.id = made.request_id
        WHERE made.by_id IS NOT NULL
        ON CONFLICT DO NOTHING;
        UPDATE {reviewers} SET changes = changes + 1, changed_at = {now}
        WHERE request_id IN (SELECT request_id FROM made);
        UPDATE {signers} signer SET behind = nullif(signer.behind - again.number, 0)
        FROM (
            SELECT behind_before.id, count(*) AS number
            FROM made JOIN {signers} behind_before
                ON behind_before.request_id = made.request_id
                AND behind_before.by_id = made.by_id
            WHERE behind_before.behind IS NOT NULL AND EXISTS (
                SELECT 1 FROM {decisions} decided
                WHERE decided.request_id = made.request_id
                    AND decided.write = made.write AND decided.by_id = made.by_id
                    AND decided.event_seq < made.event_seq
                GROUP BY decided.write
                HAVING max(decided.revision) < {newest_revision}
                    AND made.revision >= {newest_revision}
            )
            GROUP BY behind_before.id
        ) again
        WHERE signer.id = again.id;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER signer_decided AFTER INSERT ON {decisions}
    REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION countersign_signer_decided()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_signer_write_revised()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE {signers} SET behind = coalesce(behind, 0) + 1
        WHERE id IN (
            SELECT signer.id
            FROM {decisions} decided JOIN {signers} signer
                ON signer.request_id = decided.request_id
                AND signer.by_id = decided.by_id
            WHERE decided.write = NEW.write
            GROUP BY signer.id HAVING max(decided.revision) = NEW.revision - 1
        );
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER signer_write_revised AFTER INSERT ON {pending}
    FOR EACH ROW WHEN (NEW.revision > 1)
    EXECUTE FUNCTION countersign_signer_write_revised()
    """,
    f"""
    CREATE OR REPLACE FUNCTION countersign_drafter_saved()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {ADD_DRAFTERS}
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER drafter_saved AFTER INSERT ON {drafts}
    REFERENCING NEW TABLE AS saved
    FOR EACH STATEMENT EXECUTE FUNCTION countersign_drafter_saved()
    """,
    f"""
    CREATE OR REPLACE FUNCTION countersign_drafter_removed()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {TAKE_DRAFTERS}
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER drafter_removed AFTER DELETE ON {drafts}
    REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION countersign_drafter_removed()
    """,
    # Whoever holds the row wakes the job, and nobody waits for them. If they roll back,
    # its next turn comes within a minute.
    """
    CREATE OR REPLACE FUNCTION countersign_wake_notices()
    RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        UPDATE {jobs} SET due_at = {soon} WHERE id IN (
            SELECT id FROM {jobs} WHERE {sleeps} FOR UPDATE SKIP LOCKED
        );
    END $$
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_notice_request_opened()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {notices} (event, run, request, outcome, at)
        VALUES ({opened_event}, NEW.run_id, NEW.id, '', {now});
        PERFORM countersign_wake_notices();
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER notice_request_opened AFTER INSERT ON {requests}
    FOR EACH ROW WHEN (NEW.status = {open})
    EXECUTE FUNCTION countersign_notice_request_opened()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_notice_request_changed()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {notices} (event, run, request, outcome, at)
        VALUES ({event}, NEW.run_id, NEW.id, NEW.outcome, {now});
        PERFORM countersign_wake_notices();
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER notice_request_changed
    AFTER UPDATE OF status ON {requests}
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND NEW.status IN {noticed})
    EXECUTE FUNCTION countersign_notice_request_changed()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_notice_write_rebased()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {notices} (event, run, request, outcome, at)
        SELECT {came_back_event}, request.run_id, request.id, '', {now}
        FROM {requests} request WHERE {is_open_again};
        IF FOUND THEN
            PERFORM countersign_wake_notices();
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER notice_write_rebased AFTER INSERT ON {pending}
    FOR EACH ROW WHEN (NEW.reason = 'rebase')
    EXECUTE FUNCTION countersign_notice_write_rebased()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_notice_run_stopped()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {notices} (event, run, outcome, at)
        SELECT {stopped_event}, NEW.id, NEW.status, {now}
        WHERE EXISTS (
            SELECT 1 FROM {requests} WHERE run_id = NEW.id AND status = {applied}
        )
        UNION ALL {ended_run};
        IF FOUND THEN
            PERFORM countersign_wake_notices();
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER notice_run_stopped AFTER UPDATE OF status ON {runs}
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND NEW.status IN {stops})
    EXECUTE FUNCTION countersign_notice_run_stopped()
    """,
    """
    CREATE OR REPLACE FUNCTION countersign_notice_values_erased()
    RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {notices} (event, run, outcome, at) {erased_values};
        IF FOUND THEN
            PERFORM countersign_wake_notices();
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER notice_values_erased
    AFTER UPDATE OF ended_at ON {erasures}
    FOR EACH ROW WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL)
    EXECUTE FUNCTION countersign_notice_values_erased()
    """,
)

COPIES = (
    # Only rows that differ: the others need not be rewritten. A row that was copied
    # before keeps its number of changes.
    """
    UPDATE {reviewers}
    SET (run, run_created_at, graph, opened_at, deadline, waits, expired, changes,
        changed_at)
    = (
        SELECT request.run_id, run.created_at, request.graph, request.opened_at,
            request.deadline, {waits}, {expired}, coalesce(changes, 0),
            coalesce(changed_at, request.opened_at)
        FROM {requests} request JOIN {runs} run ON run.id = request.run_id
        WHERE request.id = {reviewers}.request_id
    )
    WHERE id IN (
        SELECT named.id FROM {reviewers} named
        JOIN {requests} request ON request.id = named.request_id
        JOIN {runs} run ON run.id = request.run_id
        WHERE named.run {is_not} request.run_id
            OR named.run_created_at {is_not} run.created_at
            OR named.graph {is_not} request.graph
            OR named.opened_at {is_not} request.opened_at
            OR named.deadline {is_not} request.deadline
            OR named.waits {is_not} {waits}
            OR named.expired {is_not} {expired}
            OR named.changes IS NULL OR named.changed_at IS NULL
    )
    """,
    """
    UPDATE {reviewers} SET run_graph = NULL, run_status = NULL, by_run = FALSE
    WHERE run_status IS NOT NULL AND EXISTS (
        SELECT 1 FROM {reviewers} other
        WHERE other.run = {reviewers}.run AND other.principal = {reviewers}.principal
            AND other.id < {reviewers}.id
    )
    """,
    """
    UPDATE {reviewers} SET run_graph = NULL, by_run = FALSE
    WHERE run_status IS NULL AND (run_graph IS NOT NULL OR by_run)
    """,
    """
    UPDATE {reviewers}
    SET (run_graph, run_status) = (
        SELECT run.graph, run.status FROM {runs} run WHERE run.id = {reviewers}.run
    )
    WHERE id IN (
        SELECT named.id FROM {reviewers} named JOIN {runs} run ON run.id = named.run
        WHERE (named.run_graph {is_not} run.graph OR named.run_status {is_not} run.status)
            AND NOT EXISTS (
                SELECT 1 FROM {reviewers} other
                WHERE other.run = run.id AND other.principal = named.principal
                    AND other.id < named.id
            )
    )
    """,
    """
    INSERT INTO {signers} (request_id, by_id, run, opened_at, is_open)
    SELECT DISTINCT request.id, decision.by_id, request.run_id, request.opened_at,
        request.status = {open}
    FROM {decisions} decision
    JOIN {requests} request ON request.id = decision.request_id
    WHERE decision.by_id IS NOT NULL
    ON CONFLICT DO NOTHING
    """,
    """
    UPDATE {signers} SET is_open = NOT is_open
    WHERE id IN (
        SELECT signer.id FROM {signers} signer
        JOIN {requests} request ON request.id = signer.request_id
        WHERE signer.is_open <> (request.status = {open})
    )
    """,
    """
    UPDATE {signers} SET behind = (
        SELECT {behind} FROM {signers} signer WHERE signer.id = {signers}.id
    )
    WHERE id IN (
        SELECT signer.id FROM {signers} signer WHERE signer.behind {is_not} {behind}
    )
    """,
    """
    INSERT INTO {drafters} (request_id, by_id, run, opened_at, is_open, drafts)
    {drafters_of_all}
    ON CONFLICT (request_id, by_id) DO UPDATE SET opened_at = excluded.opened_at,
        is_open = excluded.is_open, drafts = excluded.drafts
    """,
    """
    UPDATE {drafters} SET drafts = 0
    WHERE drafts <> 0 AND NOT EXISTS (
        SELECT 1 FROM ({drafters_of_all}) AS expected
        WHERE expected.request_id = {drafters}.request_id
            AND expected.by_id = {drafters}.by_id
    )
    """,
    "DELETE FROM {viewers} WHERE {unexpected}",
    """
    UPDATE {viewers}
    SET (graph, opened_at) = (
        SELECT request.graph, request.opened_at FROM {requests} request
        WHERE request.id = {viewers}.request_id
    )
    WHERE id IN (
        SELECT viewer.id FROM {viewers} viewer
        JOIN {requests} request ON request.id = viewer.request_id
        WHERE viewer.graph <> request.graph OR viewer.opened_at <> request.opened_at
    )
    """,
    """
    INSERT INTO {viewers} (request_id, principal, graph, opened_at)
    SELECT expected.request_id, expected.principal, expected.graph, expected.opened_at
    FROM ({expected}) AS expected
    WHERE TRUE
    ON CONFLICT DO NOTHING
    """,
)
"""What makes the copies of all rows, even of those that were written while a trigger
was missing.
"""
ANY_VIEWER_DIFFERS = """
    SELECT 1 WHERE EXISTS (SELECT 1 FROM {viewers} WHERE {unexpected}) OR EXISTS (
        SELECT 1 FROM ({expected}) AS expected WHERE NOT EXISTS (
            SELECT 1 FROM {viewers} listed
            WHERE listed.request_id = expected.request_id
                AND listed.principal = expected.principal
                AND listed.graph = expected.graph
                AND listed.opened_at = expected.opened_at
        )
    )
"""
"""The query that has a row if and only if rows of viewers are lost, added or changed."""


def _execute(statements: Sequence[str]) -> None:
    names = _names()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.format(**names))


def install_triggers(**_: Any) -> None:
    """Install the triggers if one is missing, and make the copies where they differ.
    Connected to post_migrate.
    """
    texts = {"sqlite": SQLITE, "postgresql": POSTGRESQL}.get(connection.vendor)
    if texts is None or not _has_columns():
        return
    if missing_triggers():
        _retried(partial(_install, texts))
    elif _any_differs():
        _retried(partial(_execute, COPIES))


def _install(texts: Sequence[str]) -> None:
    """Install the triggers, then make the copies. Nobody writes to their tables before
    the copies are made; on PostgreSQL everybody may read them.
    """
    # PostgreSQL replaces triggers, and would let nobody read a table that loses any.
    if connection.vendor == "sqlite":
        remove_triggers()
    _execute(texts)
    _execute(COPIES)


def _any_differs() -> bool:
    """Return whether a copy of a reviewer, or the list of a viewer, differs."""
    reviewers = with_copied(RequestReviewer.objects.all())
    if reviewers.filter(is_copied=False).exists():
        return True
    with connection.cursor() as cursor:
        cursor.execute(ANY_VIEWER_DIFFERS.format(**_names()))
        return cursor.fetchone() is not None


def _retried(act: Callable[[], None]) -> None:
    """Run an act in a transaction, and retry it a few times. It locks tables in another
    order than processes that work on them, and may become the victim of a deadlock.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with transaction.atomic():
                act()
        except OperationalError:
            # A transaction around it is lost.
            if attempt == ATTEMPTS or connection.in_atomic_block:
                raise
            time.sleep(attempt)
        else:
            return


def _has_columns() -> bool:
    """Return whether the tables are those of this version. The signal comes after plans
    too that remove them.
    """
    # The newest of the tables.
    tables = connection.introspection.table_names()
    return RequestDrafter._meta.db_table in tables


def remove_triggers() -> None:
    """Drop the triggers that there are."""
    with connection.cursor() as cursor:
        for name, model in TRIGGERS.items():
            suffix = ""
            if connection.vendor == "postgresql":
                suffix = f" ON {_table(model)}"
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{suffix}")


def make_room(plan: Sequence[tuple[Any, bool]] = (), **_: Any) -> None:
    """Drop the triggers before a plan of migrations that may change their tables:
    SQLite rebuilds no table while a trigger mentions one that does not exist. A plan
    that goes back drops them on PostgreSQL too, as the columns go.

    `install_triggers` follows when they are done.
    """
    is_sqlite = connection.vendor == "sqlite"
    for migration, is_backwards in plan:
        if migration.app_label in APPS and (is_sqlite or is_backwards):
            remove_triggers()
            return


def with_copied(
    reviewers: "QuerySet[RequestReviewer, RequestReviewer]",
) -> "QuerySet[Any, Any]":
    """Return these rows with `is_copied`: whether the copies are those of the request
    and the run as they are in the same moment.
    """
    can_be_decided = Q(request__status=RequestStatus.OPEN) & ~Q(
        request__run__status__in=CLOSED_TO_DECISIONS
    )
    is_same = Q(
        run=F("request__run_id"),
        run_created_at=F("request__run__created_at"),
        graph=F("request__graph"),
        opened_at=F("request__opened_at"),
    )
    has_deadline = Q(deadline=F("request__deadline")) | Q(
        deadline__isnull=True, request__deadline__isnull=True
    )
    waits = Q(can_be_decided, waits=True) | Q(~can_be_decided, waits=False)
    # Each run is listed once per principal.
    listed = RequestReviewer.objects.filter(
        run=OuterRef("run"), principal=OuterRef("principal"), run_status__isnull=False
    )
    is_listed = Q(
        ~Exists(listed.exclude(id=OuterRef("id"))),
        run_graph=F("request__run__graph"),
        run_status=F("request__run__status"),
    )
    another_is_listed = Q(Exists(listed), run_status__isnull=True, by_run=False)
    newer = PendingWrite.objects.filter(
        write=OuterRef("write"), revision__gt=OuterRef("revision")
    )
    by_deadline = Decision.objects.filter(
        ~Exists(newer),
        request=OuterRef("request"),
        by__isnull=True,
        receipt__isnull=True,
        by_name=BY_DEADLINE,
    )
    is_decided_by_it = Q(Exists(by_deadline), request__deadline__isnull=False)
    has_expired = Q(request__status=RequestStatus.EXPIRED) | Q(
        ~Q(request__status=RequestStatus.OPEN) & is_decided_by_it
    )
    expired = Q(has_expired, expired=True) | Q(~has_expired, expired=False)
    is_copied = Case(
        When(
            is_same & has_deadline & waits & expired & (is_listed | another_is_listed),
            then=Value(True),
        ),
        default=Value(False),
    )
    return reviewers.annotate(is_copied=is_copied)


def differing_viewers(run: Run, requests: Sequence[ApprovalRequest]) -> set[UUID]:
    """Return the ids of those of these requests of a run that have lost a row of
    viewers, or have another one than they should. Two queries.
    """
    listed_of_run = RequestReviewer.objects.filter(run=run.id, run_status__isnull=False)
    principals: set[str] = set()
    for principal, by_run in listed_of_run.values_list("principal", "by_run"):
        principals.add(run_principal(run.id) if by_run else principal)
    if run.started_by_id is not None:
        principals.add(starter_principal(run.started_by_id))

    listed: dict[UUID, set[tuple[str, str, datetime]]] = {}
    viewers = RequestViewer.objects.filter(request__in=requests)
    columns = ("request", "principal", "graph", "opened_at")
    for request_id, *viewer in viewers.values_list(*columns):
        listed.setdefault(request_id, set()).add(tuple(viewer))

    differing = set()
    for request in requests:
        expected = {(name, request.graph, request.opened_at) for name in principals}
        if listed.get(request.id, set()) != expected:
            differing.add(request.id)
    return differing


def run_principal(run_id: UUID) -> str:
    """Return the principal of viewers for those who see requests by their run."""
    return f"{RUN}{_as_written(Run, run_id)}"


def starter_principal(account: Any) -> str:
    """Return the principal of viewers for the account, by its id, that started a run."""
    return f"{STARTER}{_as_written(get_user_model(), account)}"


def _as_written(model: Any, key: Any) -> Any:
    """Return an id as the database writes it; that of an account may be a UUID in
    another project.
    """
    return model._meta.pk.get_db_prep_value(key, connection)


def missing_triggers() -> list[str]:
    """Return the names of missing triggers, all of them on a database of another
    kind. On PostgreSQL one whose function has another text is missing too.
    """
    query = EXISTS.get(connection.vendor)
    if query is None:
        return list(TRIGGERS)
    bodies = _bodies() if connection.vendor == "postgresql" else {}
    missing = []
    with connection.cursor() as cursor:
        for name, model in TRIGGERS.items():
            cursor.execute(query, [name, _table(model)])
            row = cursor.fetchone()
            if row is None or row[0] != bodies.get(name, name):
                missing.append(name)
    return missing


def _bodies() -> dict[str, str]:
    """Return the texts of the functions on PostgreSQL, by the names of their triggers."""
    names = _names()
    bodies = {}
    for statement in POSTGRESQL:
        head, *body = statement.format(**names).split("$$")
        if body:
            function = head.split("countersign_")[1]
            bodies[function.split("(")[0]] = body[0]
    return bodies


def check_triggers(
    app_configs: Any, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Return approvals.W002 for each missing trigger that keeps lists complete. Runs at
    migrate, and in `check --database`.
    """
    if not databases or "default" not in databases or not _has_columns():
        return []
    return [
        Warning(
            f"trigger {name} is missing: inboxes, lists and notices may lack rows",
            hint="run manage.py migrate",
            id="approvals.W002",
        )
        for name in missing_triggers()
    ]
