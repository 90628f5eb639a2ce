"""The rows of floor 2: what people are asked, what they answered, and what their
signing made of it.
"""

from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, NoReturn
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models import Run
from checkpoints.models.fields import OfTask, Sealed, hash_field
from orchestrator.engine.gates.verdicts import AUTOMATIC
from orchestrator.engine.graphs.confirmation import METHODS, WAYS
from orchestrator.engine.graphs.consideration import is_consideration
from orchestrator.engine.graphs.effect import EFFECTS
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE
from orchestrator.engine.graphs.limit import number_of
from orchestrator.engine.graphs.tiers import are_tiers, escalated, tiers_in
from orchestrator.engine.values.numbers import is_whole


def _is_needs(value: Any, row: Any) -> bool:
    """Return whether it is {channel: [channel]}, and leads in no circle."""
    if not isinstance(value, dict):
        return False
    for needed in value.values():
        if not isinstance(needed, list):
            return False
        if not all(isinstance(name, str) for name in needed):
            return False
    try:
        TopologicalSorter(value).prepare()
    except CycleError:
        return False
    return True


def _is_paths(value: Any, row: Any) -> bool:
    """Return whether it is {channel: path}."""
    if not isinstance(value, dict):
        return False
    return all(isinstance(path, str) for path in value.values())


def _is_limit(value: Any, row: Any) -> bool:
    """Return whether it is the text of an amount."""
    return isinstance(value, str) and number_of(value) is not None


def _is_tiers(value: Any, row: Any) -> bool:
    """Return whether it is tiers as policies have them."""
    return are_tiers(value)


def _is_moments(value: Any, row: Any) -> bool:
    """Return whether it is null, or [moment with a time zone, in ISO 8601]."""
    if value is None:
        return True
    if not isinstance(value, list):
        return False
    try:
        moments = [datetime.fromisoformat(text) for text in value]
    except (TypeError, ValueError):
        return False
    return all(moment.tzinfo is not None for moment in moments)


def _has_passed(value: Any, row: Any) -> bool:
    """Return whether a request may hold this as the moments at which its tiers acted."""
    return _is_moments(value, row) and len(value or ()) <= len(tiers_in(row.policy))


def _is_considered(value: Any, row: Any) -> bool:
    """Return whether a policy may ask for it as consideration."""
    return is_consideration(value)


def _is_counts(value: Any, row: Any) -> bool:
    """Return whether it is {channel: {effect: number of writes}}."""
    if not isinstance(value, dict):
        return False
    for counts in value.values():
        if not isinstance(counts, dict) or not counts.keys() <= {*EFFECTS}:
            return False
        if not all(map(is_whole, counts.values())):
            return False
    return True


def _is_window(value: Any, row: Any) -> bool:
    """Return whether it is a window in seconds, as policies have it."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and 0 < value <= LONGEST_DEADLINE.total_seconds()


def _is_standing(value: Any) -> bool:
    """Return whether it is what a decision records of a standing policy."""
    if not isinstance(value, dict) or not isinstance(value.get("limits"), dict):
        return False
    try:
        UUID(str(value.get("id")))
    except ValueError:
        return False
    return all(map(_is_limits, value["limits"].values()))


def _is_limits(value: Any) -> bool:
    """Return whether it is {path: the highest number}, as a decision records it."""
    if not isinstance(value, dict):
        return False
    return all(_is_limit(highest, None) for highest in value.values())


# Without `gate` and `reads`, which the policies of older requests may lack.
_POLICY = {
    "on_deadline?": frozenset({"reject", "approve", "fail"}),
    "reviewers": [str],
    "quorum": int,
    "reject_quorum": int,
    "four_eyes": bool,
    "all_or_nothing": bool,
    "reason_required": [str],
    "needs?": _is_needs,
    "kept?": [int],
    "kept_since?": int,
    "kept_from?": [int],
    "confirm?": frozenset(METHODS),
    "confirm_above?": _is_limit,
    "confirm_money?": _is_paths,
    "considered?": _is_considered,
    "skip?": bool,
    "asks?": [int],
    "effects?": _is_counts,
    "exclusive?": bool,
    "claim_seconds?": int,
    "tiers?": _is_tiers,
    "veto?": str,
    "auto?": str,
    "standing?": bool,
    "auto_after?": _is_window,
    "reports?": bool,
}
_LINE = {
    "write": str,
    "label?": str,
    "revision": int,
    "hash": str,
    "verdict": frozenset({"approve", "edit", "reject", "skip"}),
    "result": str,
    "why?": (str, type(None)),
    "by?": ([str], type(None)),
    "needed?": int,
    "settled?": (str, type(None)),
    "rejected_with?": str,
    "delegator?": str,
}
BY_DEADLINE = "the deadline"
"""The name under which decisions of a deadline stand. An account of that name signs with
a receipt, which a deadline has not.
"""
BY_VETO = "the veto"
"""The name under which the answers of a gate's veto stand."""
VETO = "veto"
NO_VETO = "no_veto"
VETO_ANSWERS = (VETO, NO_VETO)
"""The verdicts of a veto: what would be approved stays open, or may be approved."""
BY_POLICY = "the policy of"
"""The beginning of the name under which a gate's automatic policy signs, before the name
of the gate's node.
"""
BY_STANDING = "policy"
"""The beginning of the name under which a standing policy signs, before its number. Its
maker stands beside it, as the person whose right it uses.
"""
NO_STANDING = "standing policies"
"""The name of an answer that no standing policy signs."""
NO_AUTO = "no_auto"
"""The answer of an automatic policy that does not sign, and that no standing policy does."""
ANSWERS = (*VETO_ANSWERS, NO_AUTO)
"""The verdicts that count for nobody."""
VERDICTS = ("approve", "reject", "edit", "skip", "not_needed", *ANSWERS)
REQUEST: dict[str, Any] = {
    "title": str,
    "facts": [{"label": str}],
    "why": (str, dict),
    "policy": _POLICY,
    "passed_tiers": _has_passed,
}
_ASSERTION = {
    "document": {"decisions": [dict]},
    "credential": str,
    "fingerprint": str,
    "public_key": str,
    "client_data": str,
    "authenticator_data": str,
    "signature": str,
}
COMMENT_SHAPES: dict[str, Any] = {"text": str}
RECEIPT: dict[str, Any] = {
    "lines": [_LINE],
    "assertion": (_ASSERTION, type(None)),
}
"""The form of the JSON in columns, as `checkpoints.bundle.row_shapes` describes it, for
rows that come in as a bundle.
"""


class RequestStatus(models.TextChoices):
    """The statuses of a request."""

    OPEN = "open", "waits for people"
    SETTLED = "settled", "each write is settled; the run has not applied it yet"
    APPLIED = "applied", "a settlement has applied it"
    WITHDRAWN = "withdrawn", "its line was left, its run cancelled, or it was re-opened"
    EXPIRED = "expired", "closed by its deadline"


class ApprovalRequest(OfTask, Sealed):
    """One gate reached by one task. It carries the policy that it was opened under."""

    PAYLOADS = ("title", "facts", "why")
    SHAPES = REQUEST
    IDENTITY = ("run_id", "id")
    ADDED = ("tier_at", "passed_tiers")
    # These change after the request was sealed; a verifier derives them from the
    # decisions and the log.
    UNSEALED = ("status", "outcome", "settled_at", "settled_seq")
    MOMENT = "opened_at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No index for the run alone, because `request_by_run` begins with it.
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="requests", db_index=False
    )
    graph = models.CharField(max_length=200)
    kind = models.CharField(max_length=10, default="writes")
    ordinal = models.IntegerField(
        default=0, help_text="How often the same task had asked before."
    )
    superstep = models.PositiveIntegerField(default=0)
    input_hash = hash_field()
    prepared_from = models.UUIDField(
        null=True,
        blank=True,
        help_text=(
            "The checkpoint with the state that the task read; empty where none was "
            "kept of it."
        ),
    )
    title = models.BinaryField(help_text="Packed canonical JSON: a string.")
    facts = models.BinaryField(help_text="Packed canonical JSON: [{label, value}].")
    why = models.BinaryField(
        default=b"",
        help_text="Packed canonical JSON: the guard's reason, or its error.",
    )
    policy = models.JSONField(
        help_text=(
            "{reviewers, quorum, reject_quorum, four_eyes, all_or_nothing, ...} as "
            "resolved when it was opened."
        )
    )
    policy_hash = models.CharField(max_length=64)
    quorum = models.PositiveSmallIntegerField(default=1)
    writes = models.PositiveIntegerField(
        default=0, help_text="How many writes it asks about."
    )
    status = models.CharField(
        max_length=10, choices=RequestStatus.choices, default=RequestStatus.OPEN
    )
    outcome = models.CharField(max_length=10, blank=True, default="")
    opened_at = models.DateTimeField()
    deadline = models.DateTimeField(null=True, blank=True)
    tier_at = models.DateTimeField(
        null=True, blank=True, help_text="When the next tier of its policy acts."
    )
    passed_tiers = models.JSONField(
        null=True,
        blank=True,
        help_text="[moment at which each tier of its policy has acted, in order].",
    )
    settled_at = models.DateTimeField(null=True, blank=True)
    settled_seq = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text=(
            "Number in the log of the decision that settled it: the order of "
            "settlements."
        ),
    )

    class Meta:
        ordering = ["opened_at", "id"]
        permissions = [
            ("decide", "Can decide what runs ask"),
            ("reassign", "Can reassign and re-open requests"),
            ("view_audit", "Can read the audit log"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "line", "node", "visit", "index", "ordinal"],
                name="approval_request_task",
            ),
        ]
        indexes = [
            models.Index(fields=["run", "status"], name="request_by_run"),
            models.Index(
                # Open requests only, in the order of an inbox: settled ones stay
                # forever, and an index of all would only grow.
                fields=["deadline", "opened_at"],
                name="request_open",
                condition=models.Q(status="open"),
            ),
            models.Index(
                # Retention asks for each checkpoint whether a request needs it.
                fields=["prepared_from"],
                name="request_by_point",
                condition=models.Q(prepared_from__isnull=False),
            ),
            # The lists of people who see all runs.
            models.Index(fields=["-opened_at", "-id"], name="request_by_time"),
            models.Index(
                fields=["graph", "-opened_at", "-id"], name="request_by_graph"
            ),
            # The figures of one gate.
            models.Index(
                fields=["graph", "node", "-opened_at", "-id"], name="request_by_gate"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.graph} {self.task}"

    @property
    def reviewers_now(self) -> list[str]:
        """The principals that may decide it: those of the policy that it was opened
        under, and those whom its tiers have asked too since.
        """
        passed = tiers_in(self.policy)[: len(self.passed_tiers or ())]
        return list(dict.fromkeys([*self.policy["reviewers"], *escalated(passed)]))


class RequestReviewer(models.Model):
    """A principal that may decide a request, one to a row, with copies of what lists are
    ordered by, so that the first rows of a list are found by index.

    The copies are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey(
        ApprovalRequest, on_delete=models.CASCADE, related_name="reviewers"
    )
    principal = models.CharField(
        max_length=200, help_text="user:<name>, group:<name> or perm:<app.codename>"
    )
    # Null only in rows of an older version, until the migrations are through.
    run = models.UUIDField(null=True, editable=False)
    run_created_at = models.DateTimeField(null=True, editable=False)
    # Only in the first row of a run with this principal, so that a list has a run once,
    # and a change of its status changes few rows.
    run_graph = models.CharField(max_length=200, null=True, editable=False)  # noqa: DJ001
    run_status = models.CharField(max_length=12, null=True, editable=False)  # noqa: DJ001
    by_run = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=(
            "In the first row of a run with this principal: its requests stand in their "
            "list by the run. Else each has a row of its own there."
        ),
    )
    graph = models.CharField(max_length=200, null=True, editable=False)  # noqa: DJ001
    opened_at = models.DateTimeField(null=True, editable=False)
    deadline = models.DateTimeField(null=True, editable=False)
    waits = models.BooleanField(
        null=True,
        editable=False,
        help_text="The request is open, and the run is not closed to decisions.",
    )
    expired = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Its deadline closed the request, or decided what was left open.",
    )
    changes = models.IntegerField(
        null=True,
        editable=False,
        help_text="How often the request changed status or its run was decided on.",
    )
    changed_at = models.DateTimeField(
        null=True, editable=False, help_text="When it did last."
    )

    class Meta:
        constraints = [
            # The principal comes first, because an inbox looks for those of its person.
            models.UniqueConstraint(
                fields=["principal", "request"], name="request_reviewer_principal"
            )
        ]
        # Each list has its own, in its order.
        indexes = [
            models.Index(
                fields=["principal", "deadline", "opened_at", "request"],
                name="reviewer_inbox",
                condition=models.Q(waits=True),
            ),
            models.Index(
                fields=["principal", "opened_at", "request"],
                name="reviewer_waiting",
                condition=models.Q(waits=True),
            ),
            models.Index(
                fields=["principal", "graph", "opened_at", "request"],
                name="reviewer_waiting_of_graph",
                condition=models.Q(waits=True),
            ),
            models.Index(
                fields=["principal", "-opened_at", "-request"],
                name="reviewer_expired",
                condition=models.Q(expired=True),
            ),
            models.Index(
                fields=["principal", "-run_created_at", "-run"],
                name="reviewer_runs",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=["principal", "run_status", "-run_created_at", "-run"],
                name="reviewer_runs_of_status",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=["principal", "run_graph", "-run_created_at", "-run"],
                name="reviewer_runs_of_graph",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=[
                    "principal",
                    "run_graph",
                    "run_status",
                    "-run_created_at",
                    "-run",
                ],
                name="reviewer_runs_of_both",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(fields=["run", "principal"], name="reviewer_of_run"),
            # Those among whom a new request of the run is listed, and the runs of those
            # who are not.
            models.Index(
                fields=["run", "by_run"],
                name="reviewer_first_of_run",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=["principal", "run"],
                name="reviewer_by_run",
                condition=models.Q(by_run=True),
            ),
            models.Index(fields=["principal", "-changed_at"], name="reviewer_changes"),
            models.Index(
                # The condition keeps it apart: PostgreSQL would read it instead of that
                # of a principal.
                fields=["-changed_at"],
                name="reviewer_newest",
                condition=models.Q(changed_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.principal


class RequestViewer(models.Model):
    """A principal in whose list of all requests this one stands, because a request of its
    run names them, or the person who started the run; or the run itself, for those who
    were named when it had named many. Rows are never changed, so that these lists cost a
    decision nothing.

    Rights are judged by the run, whatever stands here: see `approvals.visible_requests`.
    The rows are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    # No index for the request alone: `request_viewer` begins with it.
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.CASCADE,
        related_name="viewers",
        db_index=False,
    )
    principal = models.CharField(
        max_length=200,
        help_text="As of a reviewer, or starter:<id of the account>, or run:<id>",
    )
    graph = models.CharField(max_length=200)
    opened_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["request", "principal"], name="request_viewer"
            )
        ]
        indexes = [
            models.Index(
                fields=["principal", "-opened_at", "-request"], name="viewer_requests"
            ),
            models.Index(
                fields=["principal", "graph", "-opened_at", "-request"],
                name="viewer_requests_of_graph",
            ),
        ]

    def __str__(self) -> str:
        return self.principal


class RequestSigner(models.Model):
    """A person who decided something in a request, for their lists of signed requests:
    each person once, however many writes they decided.

    The rows are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    # No index for the request alone: `request_signer` begins with it.
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.CASCADE,
        related_name="signers",
        db_index=False,
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    run = models.UUIDField()
    opened_at = models.DateTimeField()
    is_open = models.BooleanField()
    behind = models.IntegerField(
        null=True,
        editable=False,
        help_text=(
            "How many of the writes that they decided have a newer revision, which they "
            "have not decided; empty for none."
        ),
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "by"], name="request_signer")
        ]
        # Two, because SQLite looks for no truth value in an index.
        indexes = [
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="signer_open",
                condition=models.Q(is_open=True),
            ),
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="signer_decided",
                condition=models.Q(is_open=False),
            ),
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="signer_came_back",
                condition=models.Q(is_open=True, behind__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.by_id} in {self.request_id}"


class RequestDrafter(models.Model):
    """A person who has drafts in a request, for their folder of drafts: once, however
    many writes they drafted.

    The rows are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    # No index for the request alone: `request_drafter` begins with it.
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.CASCADE,
        related_name="drafters",
        db_index=False,
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    run = models.UUIDField()
    opened_at = models.DateTimeField()
    is_open = models.BooleanField()
    # The row stays without drafts, so that saving and removing wait for each other.
    drafts = models.IntegerField(
        help_text="For how many writes of the request there are drafts of theirs."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "by"], name="request_drafter")
        ]
        indexes = [
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="drafter_open",
                condition=models.Q(is_open=True, drafts__gt=0),
            )
        ]

    def __str__(self) -> str:
        return f"{self.by_id} in {self.request_id}"


class RequestClaim(Sealed):
    """The person who has taken a request, since and until when: a row while it lasts. Sealed, so
    that nobody keeps others from signing with a row put into the database.
    """

    IDENTITY = ("request_id",)

    id = models.BigAutoField(primary_key=True)
    request = models.OneToOneField(
        ApprovalRequest, on_delete=models.CASCADE, related_name="claim"
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
    )
    by_name = models.CharField(max_length=150)
    assigned_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        related_name="+",
        help_text="Who handed it to its holder; empty if they took it themselves.",
    )
    assigned_name = models.CharField(max_length=150, blank=True, default="")
    at = models.DateTimeField()
    until = models.DateTimeField(
        null=True, help_text="Empty where it lasts until it is released."
    )

    def __str__(self) -> str:
        return f"{self.request_id} taken by {self.by_name}"


def _refuse_change(model: type[models.Model]) -> NoReturn:
    """Raise `TypeError`: rows of this model are only ever added."""
    raise TypeError(f"{model._meta.verbose_name_plural} are append-only")


class AppendOnly(models.QuerySet[Any]):
    """Rows that are only ever added."""

    def update(self, **kwargs: object) -> NoReturn:
        _refuse_change(self.model)

    def delete(self) -> NoReturn:
        _refuse_change(self.model)


class AppendOnlyRow(Sealed):
    """A sealed row that is only ever added: the ORM refuses to change or remove it. What
    the database itself refuses is in `approvals.append_only`.
    """

    objects = AppendOnly.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert only. Raises `TypeError` for a row that was inserted before."""
        if not self._state.adding:
            _refuse_change(type(self))
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `TypeError`."""
        _refuse_change(type(self))


class Receipt(Sealed):
    """The result of one signing: for each write whether it counted, and if not, why.
    Its meaning never changes.
    """

    SHAPES = RECEIPT
    IDENTITY = ("run_id", "id")
    ADDED = ("assertion",)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="receipts")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    at = models.DateTimeField()
    # NULL, not empty: a unique constraint counts empty texts as equal.
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001
    body_hash = models.CharField(
        max_length=64,
        help_text=(
            "Hash of what was posted: the same key with another body is a conflict."
        ),
    )
    lines = models.JSONField(
        help_text=(
            "[{write, revision, hash, verdict, result, why, ...}] in the order signed."
        )
    )
    assertion = models.JSONField(
        null=True,
        blank=True,
        help_text=(
            "{document, credential, fingerprint, public_key, client_data, ...}: what a "
            "passkey signed; empty where none did."
        ),
    )

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.UniqueConstraint(
                fields=["by", "idempotency_key"], name="receipt_idempotency_key"
            )
        ]

    def __str__(self) -> str:
        return f"receipt {self.id}"


class Decision(AppendOnlyRow):
    """One person's verdict on one revision of one write, that of the request's deadline
    (`by_deadline`), the system's that it needs none (`not_needed`), or the answer of the
    gate's veto about what they approved (`veto`, `no_veto`) or of its automatic policy
    (`by_policy`, `no_auto`).

    Append-only: the ORM refuses, and so does the database.
    """

    PAYLOADS = ("old_value", "proposed_value", "final_value", "reason")
    SHAPES: ClassVar[dict[str, Any]] = {"reason": str}
    IDENTITY = ("run", "id")
    ADDED = ("confirmed_by", "delegator", "delegator_name", "delegation")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.PROTECT,
        null=True,
        related_name="decisions",
        help_text="Empty where the gate needed nobody, so that nobody was asked.",
    )
    receipt = models.ForeignKey(
        Receipt, on_delete=models.PROTECT, null=True, related_name="decisions"
    )
    run = models.UUIDField()
    line = models.PositiveIntegerField()
    task = models.CharField(max_length=240)
    write = models.UUIDField()
    position = models.PositiveIntegerField()
    channel = models.CharField(max_length=200)
    revision = models.PositiveIntegerField(
        help_text=(
            "The revision it counts for: after an edit, the one that the edit made; 0 "
            "where nothing was held."
        )
    )
    seen_hash = models.CharField(
        max_length=64,
        help_text="The hash of what was on the screen; empty where nobody was asked.",
    )
    verdict = models.CharField(
        max_length=10,
        choices=[(v, v) for v in VERDICTS],
    )
    old_value = models.BinaryField(
        help_text="Packed canonical JSON: the channel's value when it was decided."
    )
    proposed_value = models.BinaryField(help_text="Packed canonical JSON.")
    final_value = models.BinaryField(
        default=b"",
        help_text="Packed canonical JSON; empty where the verdict lets nothing happen.",
    )
    reason = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: a string."
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    by_name = models.CharField(
        max_length=150, help_text="Empty for the system.", blank=True
    )
    at = models.DateTimeField()
    event_seq = models.PositiveBigIntegerField(help_text="Its number in the run's log.")
    checked = models.JSONField(
        null=True,
        help_text=(
            "{reads: [channel]}: what the gate read to say that it needed nobody, or its "
            "veto or its policy (policy: name) to answer; standing: {id, number, by, "
            "limits, begins, ends}, the standing policy that signed; empty where "
            "somebody decided."
        ),
    )
    confirmed_by = models.CharField(
        max_length=10,
        blank=True,
        default="",
        # So that a process of the version before can still insert decisions.
        db_default="",
        choices=[(method, method) for method in ("", *WAYS)],
        help_text="How its person had shown once more who they are; empty if not.",
    )
    delegator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="Whose right its person used; empty where it was their own.",
    )
    delegator_name = models.CharField(
        max_length=150, blank=True, default="", db_default=""
    )
    delegation = models.UUIDField(
        null=True, help_text="The row by which they had passed it on."
    )

    class Meta:
        ordering = ["run", "event_seq"]
        indexes = [
            models.Index(fields=["write", "event_seq"], name="decision_by_write"),
            models.Index(fields=["run", "event_seq"], name="decision_by_run"),
            # Live pages look at the newest decision to learn whether anything changed.
            models.Index(fields=["-at"], name="decision_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.by_name or 'system'} {self.verdict} {self.task}/{self.position}"

    @property
    def by_deadline(self) -> bool:
        """Return whether the deadline of its request decided, and nobody."""
        is_unsigned = self.by_id is None and self.receipt_id is None
        is_of_request = self.request_id is not None
        return is_unsigned and is_of_request and self.by_name == BY_DEADLINE

    @property
    def by_policy(self) -> bool:
        """Return whether the automatic policy of its gate answered, or a standing policy,
        and nobody.
        """
        is_unsigned = self.by_id is None and self.receipt_id is None
        is_of_request = self.request_id is not None
        names = (f"{BY_POLICY} ", f"{BY_STANDING} ", NO_STANDING)
        return is_unsigned and is_of_request and self.by_name.startswith(names)

    @property
    def signer_name(self) -> str:
        """The name of the person or policy that decided, such as "policy 3 of ada"."""
        if self.standing:
            return f"{self.by_name} of {self.delegator_name}"
        return self.by_name

    @property
    def standing(self) -> dict[str, Any]:
        """Return what is recorded of the standing policy that signed: {id, number, by,
        limits, begins, ends}; empty where none did.
        """
        checked = self.checked
        if self.by_id is not None or not isinstance(checked, dict):
            return {}
        recorded: Any = checked.get("standing")
        # A bundle may bring anything.
        return dict(recorded) if _is_standing(recorded) else {}

    @property
    def voter(self) -> int | None:
        """Return whose decision it is, as verdicts count it."""
        if self.by_id is None and self.by_policy:
            return AUTOMATIC
        return self.by_id


class Delegation(Sealed):
    """A person passes on their right to review for a time: only the right, and to one
    person, who cannot pass it on. Sealed, so that nobody gains a right by a row put
    into the database.
    """

    IDENTITY = ("id",)
    MOMENT = "made_at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    delegator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Whose right it is.",
    )
    delegate = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Who decides for them.",
    )
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=1000, blank=True, default="")
    made_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
    )

    class Meta:
        ordering = ["-made_at", "-id"]

    def __str__(self) -> str:
        return f"{self.delegate} decides for {self.delegator}"


class RequestComment(AppendOnlyRow):
    """A sentence of a person about a request, or about one write of it. It is no
    decision, is never part of what anybody signs, and changes nothing.

    Append-only: the ORM refuses to change it, its seal names a change, and the line of
    the audit log names a comment that was removed.
    """

    PAYLOADS = ("text",)
    SHAPES = COMMENT_SHAPES
    IDENTITY = ("run_id", "id")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No index for the run alone, because `comment_by_run` begins with it.
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="comments", db_index=False
    )
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.PROTECT,
        related_name="comments",
        db_index=False,
    )
    write = models.UUIDField(
        null=True, blank=True, help_text="Empty where it is about the whole request."
    )
    text = models.BinaryField(help_text="Packed canonical JSON: a string.")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="Empty in an imported run whose author has no account here.",
    )
    by_name = models.CharField(max_length=150)
    at = models.DateTimeField(help_text="By the clock of the database.")

    class Meta:
        ordering = ["at", "id"]
        indexes = [
            models.Index(fields=["run", "at", "id"], name="comment_by_run"),
            models.Index(fields=["request", "at", "id"], name="comment_by_request"),
        ]

    def __str__(self) -> str:
        return f"comment of {self.by_name} on {self.request_id}"


class StandingPolicy(Sealed):
    """A person lets a gate sign by itself what is within their limits, until a day and a
    number of times. It signs as itself, by their right. Sealed, so that no row put into
    the database signs anything.
    """

    IDENTITY = ("id",)
    MOMENT = "made_at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    number = models.PositiveIntegerField(
        help_text="Of the policies of its maker, from 1."
    )
    # No index for the maker alone: `standing_policy_number` begins with them.
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        help_text="Who made it, and whose right it uses.",
    )
    graph = models.CharField(max_length=200)
    gate = models.CharField(max_length=200, help_text="The node of the gate.")
    limits = models.JSONField(
        help_text="{channel: {path in the proposed value: the highest number, as text}}"
    )
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    most_uses = models.PositiveIntegerField(help_text="How many writes it may sign.")
    uses = models.PositiveIntegerField(
        default=0, help_text="How many writes it has signed."
    )
    reason = models.CharField(max_length=1000, blank=True, default="")
    made_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
    )

    class Meta:
        ordering = ["-made_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["by", "number"], name="standing_policy_number"
            )
        ]
        indexes = [
            # Those that may sign at a gate; the others only grow in number.
            models.Index(
                fields=["graph", "gate", "made_at"],
                name="standing_policy_of_gate",
                condition=models.Q(revoked_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.by}"

    @property
    def name(self) -> str:
        return f"{BY_STANDING} {self.number}"


class Draft(Sealed):
    """A person's choice for one write that is not signed yet. Nobody else sees it;
    signing and settling remove it.
    """

    PAYLOADS = ("choice",)
    IDENTITY = ("run_id", "by_id", "write")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="drafts")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    # Settling a write removes everybody's drafts of it.
    write = models.UUIDField(db_index=True)
    revision = models.PositiveIntegerField(
        help_text="The revision that was on the screen."
    )
    seen_hash = models.CharField(
        max_length=64, help_text="Its hash: of another one the draft is stale."
    )
    choice = models.BinaryField(
        help_text="Packed canonical JSON: {verdict, reason, fields as they were typed}."
    )
    number = models.PositiveBigIntegerField(
        help_text="Of the save, from 1: an older one never replaces a newer one."
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["write"]
        constraints = [
            models.UniqueConstraint(fields=["by", "write"], name="draft_by_write")
        ]
        # A person's drafts in a run.
        indexes = [models.Index(fields=["by", "run"], name="draft_by_person")]

    def __str__(self) -> str:
        return f"draft for {self.write} r{self.revision}"


class Sighting(models.Model):
    """The first time that a person had a revision of a write on the screen, so that a
    gate can ask for it, and figures can count how soon they signed. It gives no right.
    """

    id = models.BigAutoField(primary_key=True)
    # No key of the run's row, so that nobody waits here for whoever has locked it.
    run = models.UUIDField(db_index=True)
    request = models.UUIDField()
    write = models.UUIDField()
    revision = models.IntegerField()
    # No index for the person alone: `sighting_of_revision` begins with them.
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    at = models.DateTimeField(help_text="By the clock of the database.")
    opened_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When nothing of it was folded any more; empty if something is.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["by", "write", "revision"], name="sighting_of_revision"
            )
        ]

    def __str__(self) -> str:
        return f"{self.by_id} saw {self.write} r{self.revision}"


class Passkey(Sealed):
    """A key of a person's authenticator, with which they sign what gates ask for. The
    row is sealed, so that nobody puts a key of their own into the database, or brings
    back one that was revoked.
    """

    IDENTITY = ("credential",)
    MOMENT = "created_at"

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="countersign_passkeys",
    )
    name = models.CharField(max_length=100)
    credential = models.CharField(
        max_length=1400,
        unique=True,
        help_text="The id that the authenticator gave it, in base64url.",
    )
    cose_key = models.TextField(help_text="Its public key as WebAuthn has it: base64.")
    public_key = models.TextField(
        help_text="The same as SubjectPublicKeyInfo: DER in base64."
    )
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of `public_key`.")
    rp_id = models.CharField(max_length=253, help_text="The site that it is for.")
    sign_count = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class PasskeyChallenge(models.Model):
    """A document that a person is about to sign with a passkey: used once, by them, in
    the same session, within minutes.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    session = models.CharField(max_length=64, help_text="SHA-256 of the session's key.")
    nonce = models.CharField(max_length=64)
    challenge = models.CharField(
        max_length=64, help_text="SHA-256 of the document that is to be signed."
    )
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"challenge of {self.user_id}"


class FreshLogin(models.Model):
    """A log-in at the provider of a company by which a person confirms one act, in the
    session that began it, within minutes.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    session = models.CharField(max_length=64, help_text="SHA-256 of the session's key.")
    nonce = models.CharField(
        max_length=64,
        unique=True,
        help_text="What the provider has answered; an answer counts once.",
    )
    created_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"log-in of {self.user_id}"


class Notice(models.Model):
    """Something that happened to a request, or to a run in which people decided. It
    holds ids and words alone: what it is about is read when it is sent.

    The rows are made by triggers, in the transaction of what happened: see
    `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    event = models.CharField(max_length=30)
    # Without keys to other tables, because history may be removed while it waits.
    run = models.UUIDField(null=True, blank=True, help_text="Empty for a test.")
    request = models.UUIDField(null=True, blank=True)
    outcome = models.CharField(
        max_length=20,
        blank=True,
        default="",
        help_text="The outcome of the request, or the status of the run.",
    )
    tier = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Which tier of the request acted, from 0."
    )
    comment = models.UUIDField(
        null=True, blank=True, help_text="The comment that it is about."
    )
    at = models.DateTimeField()
    passed_on_at = models.DateTimeField(
        null=True, blank=True, help_text="When deliveries were made of it."
    )

    class Meta:
        ordering = ["-id"]
        indexes = [
            # The few that wait, however many there were.
            models.Index(
                fields=["id"],
                name="notice_waiting",
                condition=models.Q(passed_on_at__isnull=True),
            ),
            # Set by a trigger if a request that came back is waiting already.
            models.Index(
                fields=["request", "event"],
                name="notice_waiting_of_request",
                condition=models.Q(passed_on_at__isnull=True),
            ),
            models.Index(fields=["at"], name="notice_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.request or self.run or ''}"


class Envelope(models.TextChoices):
    """The forms of a message."""

    STANDARD = "standard", "Standard Webhooks"
    CLOUDEVENTS = "cloudevents", "CloudEvents 1.0"


class Webhook(Sealed):
    """An address to which notices are sent, and the secret that signs them. The row is
    sealed, so that nobody leads them elsewhere in the database, and the secret is
    encrypted wherever there is a key to do so.

    With a run it is the callback of that approval, and hears of nothing else.
    """

    PAYLOADS = ("secret",)
    ADDED = ("envelope", "run", "receiver")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    url = models.CharField(max_length=500)
    events = models.JSONField(
        default=list, blank=True, help_text="[event]; empty for all."
    )
    graphs = models.JSONField(
        default=list, blank=True, help_text="[name]; empty for all."
    )
    envelope = models.CharField(
        max_length=20,
        choices=Envelope.choices,
        default=Envelope.STANDARD,
        db_default=Envelope.STANDARD,
    )
    run = models.UUIDField(
        null=True,
        blank=True,
        unique=True,
        help_text="The approval whose callback it is; empty for all others.",
    )
    receiver = models.CharField(
        max_length=253,
        blank=True,
        default="",
        db_default="",
        help_text="The host of a callback, to which one job sends.",
    )
    secret = models.BinaryField(help_text="Packed canonical JSON: a string.")
    encrypted = models.BooleanField(default=False)
    active = models.BooleanField(default=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at", "-id"]
        permissions = [("manage_webhooks", "Can manage webhooks")]

    def __str__(self) -> str:
        return f"webhook {self.id} to {self.host}"

    @property
    def host(self) -> str:
        """The host of the address, whose path may be secret; empty if it cannot be read."""
        try:
            return urlsplit(self.url).hostname or ""
        except ValueError:
            return ""


class DeliveryStatus(models.TextChoices):
    """The statuses of a delivery."""

    WAITING = "waiting", "waits for its next attempt"
    DELIVERED = "delivered", "the receiver has accepted it"
    GIVEN_UP = "given_up", "not accepted within a day"


class WebhookDelivery(models.Model):
    """One notice on its way to one webhook. Its id is that of the message, the same at
    each attempt, so that a receiver can drop what it has.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The constraint below begins with it.
    webhook = models.ForeignKey(
        Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False
    )
    notice = models.ForeignKey(
        Notice, on_delete=models.CASCADE, related_name="deliveries"
    )
    status = models.CharField(
        max_length=10, choices=DeliveryStatus.choices, default=DeliveryStatus.WAITING
    )
    attempts = models.IntegerField(default=0)
    due_at = models.DateTimeField()
    made_at = models.DateTimeField()
    first_at = models.DateTimeField(
        null=True, blank=True, help_text="Of the first attempt since it was due."
    )
    last_at = models.DateTimeField(null=True, blank=True)
    code = models.IntegerField(
        null=True, blank=True, help_text="The status that the receiver answered last."
    )
    error = models.CharField(
        max_length=200, blank=True, default="", help_text="Why it failed, in our words."
    )

    class Meta:
        ordering = ["-made_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["webhook", "notice"], name="webhook_delivery_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["webhook", "due_at"],
                name="webhook_delivery_due",
                condition=models.Q(status="waiting"),
            ),
            models.Index(
                fields=["webhook", "-made_at", "-id"], name="webhook_delivery_newest"
            ),
        ]

    def __str__(self) -> str:
        return f"delivery {self.id}"


class Door(Sealed):
    """An address at which another service delivers signed news to runs of one graph. An
    account signs it as the answer to what the gate of a node asks. The row is sealed,
    so that nobody leads the news elsewhere in the database, and the secret is encrypted
    wherever there is a key to do so.
    """

    PAYLOADS = ("secret",)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.CharField(max_length=60, unique=True)
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    secret = models.BinaryField(help_text="Packed canonical JSON: a string.")
    encrypted = models.BooleanField(default=False)
    graph = models.CharField(max_length=200)
    node = models.CharField(max_length=200, help_text="The node whose gate asks.")
    key_pointer = models.CharField(
        max_length=200, help_text="JSON Pointer to the key of the run in a body."
    )
    answer_pointer = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="JSON Pointer to the answer; empty for the whole body.",
    )
    until = models.DateTimeField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at", "-id"]
        permissions = [("manage_doors", "Can manage doors")]

    def __str__(self) -> str:
        return f"door {self.slug}"


class MessageStatus(models.TextChoices):
    """The statuses of a message at a door."""

    KEPT = "kept", "waits for its question"
    DELIVERED = "delivered", "signed as an answer"
    REFUSED = "refused", "not delivered"


class DoorMessage(Sealed):
    """One message at a door, under the id that its sender gave it, which takes effect
    once. Its body is encrypted wherever there is a key to do so, and dropped once it
    was delivered: the decision holds the answer then.
    """

    PAYLOADS = ("body",)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The constraint below begins with it.
    door = models.ForeignKey(
        Door, on_delete=models.PROTECT, related_name="messages", db_index=False
    )
    message_id = models.CharField(max_length=200)
    graph = models.CharField(max_length=200)
    key = models.CharField(max_length=200, help_text="The key of the run.")
    body = models.BinaryField(
        default=b"", help_text="Packed canonical JSON; empty once it was delivered."
    )
    encrypted = models.BooleanField(default=False)
    body_hash = hash_field()
    status = models.CharField(
        max_length=10, choices=MessageStatus.choices, default=MessageStatus.KEPT
    )
    code = models.CharField(
        max_length=60, blank=True, default="", help_text="Why it was refused."
    )
    at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["door", "message_id"], name="door_message_once"
            )
        ]
        indexes = [
            models.Index(fields=["key", "graph"], name="door_message_of_run"),
            models.Index(fields=["at"], name="door_message_age"),
            # Filter and search of the admin's list.
            models.Index(fields=["status", "-at", "-id"], name="door_message_status"),
            models.Index(fields=["message_id"], name="door_message_id"),
        ]

    def __str__(self) -> str:
        return f"message {self.message_id} at {self.door_id}"


class MailPreference(models.Model):
    """The choice of a person about notices by mail. A person without a row gets
    digests at all hours.
    """

    AT_ONCE = "at_once"
    DIGEST = "digest"
    NONE = "none"
    MODES = (
        (AT_ONCE, "each at once"),
        (DIGEST, "gathered, at most every ten minutes"),
        (NONE, "none"),
    )

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="countersign_mail",
    )
    mode = models.CharField(max_length=10, choices=MODES, default=DIGEST)
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(
        null=True, blank=True, help_text="Before its beginning: on the next day."
    )
    time_zone = models.CharField(
        max_length=64, default="UTC", help_text="A name of the tz database."
    )
    muted = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="[kind of notices that the console does not list for them].",
    )

    def __str__(self) -> str:
        return f"mail of {self.user}"

    @classmethod
    def of(cls, person: Any) -> "MailPreference":
        """Return the choice of a person, or an unsaved one for a person without."""
        row = cls.objects.filter(user=person.pk).first()
        return row or cls(user_id=person.pk)


class PersonNotice(models.Model):
    """One notice as one person reads it in the console: ids and words, a copy of the
    notice, which is removed earlier. What it is about is read when it is shown, and the
    right to see that is judged then.
    """

    id = models.BigAutoField(primary_key=True)
    # The constraint below begins with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    # Without a key, because the notice is removed earlier.
    notice = models.BigIntegerField(help_text="The number of the notice.")
    event = models.CharField(max_length=30)
    run = models.UUIDField()
    request = models.UUIDField(null=True, blank=True)
    outcome = models.CharField(max_length=20, blank=True, default="")
    at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-notice"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "notice"], name="person_notice_once"
            )
        ]
        indexes = [
            # The few that nobody has read, however many there were.
            models.Index(
                fields=["user"],
                name="person_notice_unread",
                condition=models.Q(read_at__isnull=True),
            ),
            models.Index(fields=["at"], name="person_notice_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event} for {self.user_id}"


class SavedFilter(models.Model):
    """A filter of the inbox that a person has saved under a name. It grants no right:
    what it leads to is judged when it is opened.
    """

    id = models.BigAutoField(primary_key=True)
    # The constraint below begins with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    name = models.CharField(max_length=60)
    query = models.CharField(
        max_length=3000,
        help_text="Of the address of the inbox: its folder, words and whose claim.",
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="saved_filter_name")
        ]

    def __str__(self) -> str:
        return f"filter of {self.user_id}"


class NoticeMail(models.Model):
    """One notice on its way to one person. `batch` is the id of the message in which it
    goes, fixed before that is sent.
    """

    id = models.BigAutoField(primary_key=True)
    # The constraint below begins with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="mails")
    status = models.CharField(
        max_length=10, choices=DeliveryStatus.choices, default=DeliveryStatus.WAITING
    )
    batch = models.UUIDField(null=True, blank=True, db_index=True)
    attempts = models.IntegerField(default=0)
    made_at = models.DateTimeField()
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "notice"], name="notice_mail_once")
        ]
        indexes = [
            models.Index(
                fields=["user", "due_at"],
                name="notice_mail_due",
                condition=models.Q(status="waiting"),
            ),
            models.Index(fields=["user", "sent_at"], name="notice_mail_sent"),
        ]

    def __str__(self) -> str:
        return f"mail about {self.notice_id} to {self.user_id}"
