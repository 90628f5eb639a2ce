"""Seals the rows of an older release again, once: each is verified by the rule of that
release and sealed by the one of today, table by table.

The command `seal_anew` uses it. There is no list of finished work: a row that has the
seal of today is passed over, so a renewal that was interrupted is simply begun again.
The audit log comes last, in one transaction with the line that says so, for its chain
is made of seals.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import transaction
from django.db.models import BinaryField, Model, QuerySet

from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.audit.chain import ChainHead
from checkpoints.conf import keyring
from checkpoints.db.pages import pages
from checkpoints.models import (
    AuditHead,
    AuditLine,
    ErasedRow,
    ErasureRecord,
    OlderSeals,
    Run,
)
from checkpoints.models.fields import Sealed
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.older_seals import verify_older
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, Protection, name_of
from checkpoints.verification.erasures import rows_digest
from checkpoints.verification.told_heads import RENEWED, told_heads
from orchestrator.engine.errors import CountersignError, TamperedRow, WrongKey

BATCH_ROWS = 200
"""The most rows that one transaction seals again."""

TriggersLifted = Callable[[str], AbstractContextManager[None]]
"""For the name of a table: a block in which its rows may be updated."""


@dataclass(slots=True)
class Renewed:
    """The progress of a renewal: rows by table, the newest of these tables, and why
    each row that was left as it is does not verify.
    """

    rows: dict[str, int] = field(default_factory=dict)
    table: str = ""
    tampered: list[str] = field(default_factory=list)

    def count(self, row: Model) -> None:
        self.table = row._meta.db_table
        self.rows[self.table] = self.rows.get(self.table, 0) + 1


def is_due() -> bool:
    """Return whether rows wait to be resealed."""
    return OlderSeals.objects.exists()


def seal_anew(
    result: Renewed,
    *,
    by: Any,
    triggers_lifted: TriggersLifted,
    leaves_tampered: bool = False,
) -> Iterator[Renewed]:
    """Reseal every row of an older release, batch by batch, each in its own
    transaction; yields `result` after each.

    Raises `TamperedRow` or `WrongKey`, naming the row, at the first row that neither
    the older release nor this one sealed; its batch is rolled back. If it
    `leaves_tampered`, such a row keeps its old seal, which no longer proves anything,
    so that its run is found to be tampered with; the audit log must be whole all the
    same.
    """
    _require_first_time()
    renewal = _Renewal(result, triggers_lifted, leaves_tampered=leaves_tampered)
    # First, while the rows of other tables have the seals that these records name.
    for record in ErasureRecord.objects.order_by("id").values_list("id", flat=True):
        with renewal.tampered_left(), transaction.atomic():
            renewal.renew_erasure(record)
        yield result
    for model in _models():
        yield from _renew_table(renewal, model)
    with transaction.atomic():
        head = _renew_audit_log(renewal, by)
        OlderSeals.objects.all().delete()
    # After the commit: a published head that the table lacks would stop the chain.
    audit_chain.tell_head(head)
    yield result


def _require_first_time() -> None:
    """Raise `TamperedRow` if the audit log says that rows were resealed before: the
    mark of an older release was put back by hand, so that older rows would count.
    """
    for line in AuditLine.objects.filter(kind=RENEWED):
        if fault_of(line, PLAIN) is None:
            table = OlderSeals._meta.db_table
            raise TamperedRow(
                f"the rows were sealed anew on {line.at:%Y-%m-%d} already, and"
                f" {table} has a row again",
                row=table,
            )


def _models() -> list[type[Model]]:
    """Return the models whose rows are sealed, in order of their tables, without those
    that are renewed apart. The seal of a run's row never changed.
    """
    apart = {Run, AuditHead, AuditLine, ErasureRecord, ErasedRow}
    models = []
    for model in apps.get_models():
        if issubclass(model, Sealed) and model not in apart:
            models.append(model)
    return sorted(models, key=_table_of)


def _table_of(model: type[Model]) -> str:
    return model._meta.db_table


def _renew_table(renewal: "_Renewal", model: type[Model]) -> Iterator[Renewed]:
    table = model._meta.db_table
    last: Any = None
    while True:
        rows = _rows(model)
        if last is not None:
            rows = rows.filter(pk__gt=last)
        with transaction.atomic(), renewal.triggers_lifted(table):
            batch = list(rows.order_by("pk").select_for_update()[:BATCH_ROWS])
            for row in batch:
                with renewal.tampered_left():
                    renewal.renew(row)
        if not batch:
            return
        last = batch[-1].pk
        yield renewal.result


def _rows(model: type[Model]) -> "QuerySet[Any]":
    """Return a model's rows without bytes that no seal covers."""
    any_model: Any = model
    sealed_later = set(any_model.SEALED_LATER)
    unread = []
    for column in model._meta.concrete_fields:
        is_bytes = isinstance(column, BinaryField)
        if is_bytes and column.name in set(any_model.UNSEALED) - sealed_later:
            unread.append(column.name)
    return model._base_manager.defer(*unread)


class _Renewal:
    """Verifies rows by the older rule and seals them by that of today."""

    def __init__(
        self,
        result: Renewed,
        triggers_lifted: TriggersLifted,
        *,
        leaves_tampered: bool,
    ) -> None:
        self.result = result
        self.triggers_lifted = triggers_lifted
        self._leaves_tampered = leaves_tampered
        self._protections = _protections()

    @contextmanager
    def tampered_left(self) -> Iterator[None]:
        """Note a row that does not verify and leave it as it is, if that was chosen;
        otherwise its `TamperedRow` is raised. A missing key is never passed over.
        """
        try:
            yield
        except TamperedRow as error:
            if not self._leaves_tampered:
                raise
            self.result.tampered.append(error.message)

    def renew(self, row: Any) -> bool:
        """Reseal a row. Returns False for one that has today's seal already. Raises
        `TamperedRow`, `WrongKey`.
        """
        protection = self._older_protection(row)
        if protection is None:
            return False
        self.save(row, protection)
        return True

    def save(self, row: Any, protection: Protection, **values: Any) -> None:
        """Reseal a verified row with these values, and save it."""
        changed = sealed_rows.seal_again(row, protection, **values)
        columns = {name: getattr(row, name) for name in changed}
        type(row)._base_manager.filter(pk=row.pk).update(**columns)
        self.result.count(row)

    def renew_erasure(self, record_id: Any) -> None:
        """Renew the seals of an erasure's record, of its rows, and of the rows that
        these name. Raises `TamperedRow`, `WrongKey`.
        """
        record = ErasureRecord.objects.get(id=record_id)
        protection = self._older_protection(record)
        if protection is None:
            return
        has_ended = record.ended_at is not None
        # The hash is over the seals of these rows, so it is compared before they are
        # replaced.
        if has_ended and (record.rows, record.rows_hash) != rows_digest(record):
            name = name_of(record)
            raise TamperedRow(f"{name} lists other rows than when it ended", row=name)

        for page in pages(ErasedRow.objects.filter(record=record), "id"):
            for erased_row in page:
                self._renew_erased(erased_row)
        if not has_ended:
            self.save(record, protection)
            return
        # The run's log records the hash over the old seals and never changes, so that
        # hash is kept beside the new one.
        logged_hash = record.origin_rows_hash or record.rows_hash
        new_hash = rows_digest(record)[1]
        self.save(record, protection, rows_hash=new_hash, origin_rows_hash=logged_hash)

    def _renew_erased(self, erased_row: ErasedRow) -> None:
        # Rows of an erasure are sealed without the protection of their run.
        verify_older(erased_row, PLAIN)
        row = None if _has_later(erased_row) else _row_of(erased_row)
        # The end of a result's thread may have sealed the row since.
        if row is None or bytes(row.seal or b"") != bytes(erased_row.new_seal):
            self.save(erased_row, PLAIN)
            return
        with self.triggers_lifted(erased_row.table):
            self.renew(row)
        self.save(erased_row, PLAIN, new_seal=row.seal, new_key=row.seal_key)

    def _older_protection(self, row: Any) -> Protection | None:
        """Return the protection under which an older release sealed a row; None if it
        has today's seal. Raises `TamperedRow`, `WrongKey`.

        A seal covers how its run is protected, so only one protection fits. The run may
        have been removed, and its decisions are still there.
        """
        errors = []
        for protection in self._protections:
            try:
                verify_older(row, protection)
            except CountersignError as error:
                errors.append(error)
            else:
                self._try_first(protection)
                return protection
        if self._has_seal_of_today(row):
            return None
        raise _most_informative(errors)

    def _try_first(self, protection: Protection) -> None:
        """Try the protection of the row before first: most rows share it."""
        if self._protections[0] != protection:
            self._protections.remove(protection)
            self._protections.insert(0, protection)

    def _has_seal_of_today(self, row: Any) -> bool:
        return any(
            fault_of(row, protection) is None for protection in self._protections
        )


def _protections() -> list[Protection]:
    """Return every way in which a row of this installation may be protected."""
    protections = {PLAIN: None, Protection(True): None}
    for key_id in keyring().encryption:
        protections[Protection(True, key_id)] = None
    runs = Run.objects.order_by().values_list("encrypted", "hash_key").distinct()
    for encrypted, hash_key in runs:
        protections[Protection(encrypted, hash_key)] = None
    return list(protections)


def _most_informative(errors: Iterable[CountersignError]) -> CountersignError:
    """Return the most informative error: a missing key, else a seal that does not
    match. An error about a payload column only means that this protection was not the
    row's.
    """
    by_rank = sorted(errors, key=_rank)
    return by_rank[0]


def _rank(error: CountersignError) -> int:
    if isinstance(error, WrongKey):
        return 0
    return 2 if "column" in error.facts else 1


def _has_later(erased_row: ErasedRow) -> bool:
    """Return whether a later erasure lists the same row: only the newest is compared
    with the seal that the row has.
    """
    later = ErasedRow.objects.filter(
        table=erased_row.table, row=erased_row.row, id__gt=erased_row.id
    )
    return later.exists()


def _row_of(erased_row: ErasedRow) -> Any:
    """Return the row that something was erased of; None if it is gone, or where its
    seal never changed.
    """
    for model in _models():
        if model._meta.db_table == erased_row.table:
            pk = model._meta.pk.to_python(erased_row.row)
            return _rows(model).filter(pk=pk).first()
    return None


# The audit log.


def _renew_audit_log(renewal: _Renewal, by: Any) -> ChainHead:
    """Seal and chain every line again, after its chain and each head that was published
    outside the database were verified. Returns the new head.
    """
    own_row = AuditHead.objects.select_for_update().first()
    if own_row is None:
        table = AuditHead._meta.db_table
        raise TamperedRow(f"the row of {table} is gone", row=table)
    renewal.renew(own_row)
    head = _renew_lines(renewal)
    if head != ChainHead(own_row.number, own_row.hash):
        raise TamperedRow(
            f"the audit log was chained up to line {own_row.number}, and its last line"
            f" is {head.number} or another {own_row.number}",
            row=name_of(own_row),
        )
    # Compared while the lines have the hashes that were published.
    for fault in told_heads():
        raise TamperedRow(fault.reason, row=fault.what)

    published = audit_chain.last_told_head() or head
    # Number 0: the lines of all heads that were published get other hashes.
    audit_log.record(
        RENEWED,
        actor=by,
        rows=renewal.result.rows,
        tampered=len(renewal.result.tampered),
        number=0,
        hash="",
        told_number=published.number,
        told_hash=published.hash,
    )
    _chain_numbered_lines()
    return audit_chain.chain_anew()


def _renew_lines(renewal: _Renewal) -> ChainHead:
    """Reseal the lines and leave their hashes as they are. Returns the head of the
    chain, which held until then. Raises `TamperedRow`, `WrongKey`.
    """
    head = ChainHead()
    for page in pages(AuditLine.objects.filter(number__isnull=False), "number"):
        for line in page:
            # The hash covers the line's number too.
            if audit_chain.line_hash(head.hash, line) != line.hash:
                name = f"{AuditLine._meta.db_table} {line.number}"
                raise TamperedRow(f"{name} is not chained to the line before", row=name)
            head = ChainHead(line.number or 0, line.hash)
            renewal.renew(line)
    for page in pages(AuditLine.objects.filter(number=None), "id"):
        for line in page:
            renewal.renew(line)
    return head


def _chain_numbered_lines() -> None:
    """Chain the lines that have a number by the seals that they have now."""
    head = ChainHead()
    for page in pages(AuditLine.objects.filter(number__isnull=False), "number"):
        for line in page:
            line.hash = audit_chain.line_hash(head.hash, line)
            head = ChainHead(line.number or 0, line.hash)
        AuditLine.objects.bulk_update(page, ["hash"])
