"""A line of the installation's audit log: decisions and other acts of people, refusals,
and what is done to the installation itself. It outlives the runs that it is about.
"""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.lookups import IsNull

from checkpoints.models.fields import Sealed, hash_field

ROUTINE = "heads_anchored"
"""The kind that a job writes every minute: lists leave it out unless it is asked for.
"""
NEWEST = ("-at", "-id")


class _FactOfLine(models.Func):
    """A value among the facts of a line, as its index has it: in SQL without parameters,
    for an index knows constants only. `template_on_sqlite` is its SQL there.
    """

    template_on_sqlite = ""

    def __init__(self, *facts: Any, **options: Any) -> None:
        super().__init__(*(facts or ("facts",)), **options)

    def as_sqlite(
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, Any]:
        """Return the SQL and no parameters."""
        context["template"] = self.template_on_sqlite
        return self.as_sql(compiler, connection, **context)


class PolicyOfLine(_FactOfLine):
    """The id of the standing policy that a line is about, as text; NULL in others."""

    template = "(%(expressions)s ->> 'policy')"
    template_on_sqlite = "json_extract(%(expressions)s, '$.policy')"
    output_field = models.TextField()


class UsesOfLine(_FactOfLine):
    """The number of uses that a standing policy had by then; NULL in other lines."""

    template = (
        "(CASE WHEN jsonb_typeof(%(expressions)s -> 'uses') = 'number'"
        " THEN (%(expressions)s ->> 'uses')::numeric END)"
    )
    template_on_sqlite = "json_extract(%(expressions)s, '$.uses')"
    output_field = models.IntegerField()


class AuditLine(Sealed):
    """Append-only. Chained in batches by a job, so number and hash are empty until
    then.
    """

    UNSEALED = ("number", "hash")

    id = models.BigAutoField(primary_key=True)
    number = models.BigIntegerField(null=True, blank=True, unique=True)
    at = models.DateTimeField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    actor_name = models.CharField(max_length=150, blank=True, default="")
    kind = models.CharField(max_length=60)
    graph = models.CharField(max_length=200, blank=True, default="")
    # No foreign keys: a line outlives the run and the request that it is about.
    run = models.UUIDField(null=True, blank=True)
    request = models.UUIDField(null=True, blank=True)
    facts = models.JSONField(
        default=dict,
        blank=True,
        help_text="Ids and names; never a value that a person decides on.",
    )
    hash = hash_field()

    class Meta:
        ordering = ["-id"]
        # What the page filters by, each in the order in which it lists; and what
        # anchoring asks for, by number.
        indexes = [
            models.Index(fields=["kind", "-id"], name="audit_line_by_kind"),
            models.Index(fields=["kind", *NEWEST], name="audit_line_kind_newest"),
            models.Index(fields=["run", *NEWEST], name="audit_line_run_newest"),
            models.Index(fields=["actor", *NEWEST], name="audit_line_actor_newest"),
            models.Index(fields=["graph", *NEWEST], name="audit_line_graph_newest"),
            models.Index(fields=NEWEST, name="audit_line_at"),
            models.Index(
                fields=NEWEST,
                name="audit_line_newest",
                condition=~models.Q(kind=ROUTINE),
            ),
            models.Index(
                fields=NEWEST,
                name="audit_line_of_runs",
                condition=models.Q(run__isnull=False),
            ),
            # Each use of a standing policy asks whether the log has more uses of it.
            models.Index(
                PolicyOfLine(),
                UsesOfLine(),
                name="audit_line_by_policy",
                condition=models.Q(IsNull(PolicyOfLine(), False)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor_name or 'system'} {self.kind}"


class AuditHead(Sealed):
    """The head of the audit log's chain, as the job that chains it recorded it: one
    row, sealed again with each batch. A log with another last numbered line has lost
    lines, or was not numbered by this application.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField(
        default=0, help_text="Of the last line that was chained; 0 where none was."
    )
    hash = hash_field()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"head of the audit log at {self.number}"
