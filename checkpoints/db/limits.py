"""Limits to how long a client that freezes or vanishes inside a transaction keeps its
locks. PostgreSQL only: a server can end the transactions of others. On SQLite a lock is
held by a process of this host, and nobody can take it away.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, Error, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import CharField, Func, Model, QuerySet, Value

from checkpoints.conf import conf

Row = TypeVar("Row", bound=Model)

LOCK_SECONDS = 5.0
"""How long a person's act waits for a lock that is taken: a page must answer."""
ANSWER_SECONDS = 5.0
"""How long a process that must show that it is alive waits for the database."""
_IDLE = "idle_in_transaction_session_timeout"


def idle_seconds() -> float:
    """Return the seconds without a statement after which the server ends a transaction:
    before the lease of its owner runs out, and later than an atomic node may take.
    """
    return conf().lease_seconds * 2 / 3


def limit_connections() -> None:
    """Make each connection to the default database that is opened from now on, in this
    process and in those forked from it, end where its owner or its server freezes or
    vanishes. For processes that only work on runs.
    """
    options: dict[str, Any] = connections[DEFAULT_DB_ALIAS].settings_dict["OPTIONS"]
    if connections[DEFAULT_DB_ALIAS].vendor == "postgresql":
        for name, value in _of_the_client().items():
            # A project's own settings stay.
            options.setdefault(name, value)
    connection_created.connect(_limit, dispatch_uid="checkpoints.db.limits")


def within_limits(rows: "QuerySet[Row]") -> "QuerySet[Row]":
    """Return the query, which waits for locks no longer than `LOCK_SECONDS`, then
    raises `OperationalError`; and after which its transaction may not be idle longer
    than `idle_seconds`. It costs no further statement.
    """
    return within_given_limits(rows, *lock_limits())


def lock_limits() -> tuple[str, str]:
    """Return the milliseconds that `within_limits` sets: how long a lock is waited for,
    and how long the transaction may be idle.
    """
    return _milliseconds(LOCK_SECONDS), _milliseconds(idle_seconds())


def within_given_limits(
    rows: "QuerySet[Row]", lock_limit: str, idle_limit: str
) -> "QuerySet[Row]":
    """Return the query of `within_limits` with these milliseconds, for a query whose
    text is kept.
    """
    if connections[DEFAULT_DB_ALIAS].vendor != "postgresql":
        return rows
    limits = {"lock_timeout": lock_limit, _IDLE: idle_limit}
    aliases: dict[str, Any] = {}
    conditions: dict[str, Any] = {}
    for name, milliseconds in limits.items():
        # True: the setting holds until the transaction ends.
        aliases[f"{name}_said"] = Func(
            Value(name),
            Value(milliseconds),
            Value(True),
            function="set_config",
            output_field=CharField(),
        )
        # A row passes the condition before it is locked.
        conditions[f"{name}_said__isnull"] = False
    limited: QuerySet[Row] = rows.alias(**aliases).filter(**conditions)
    return limited


@contextmanager
def short_statements(seconds: float) -> Iterator[None]:
    """Open a transaction of which no statement may take longer than these seconds; one
    that does raises `OperationalError`. A shorter limit that is set already stays. Does
    nothing on SQLite.
    """
    if connection.vendor != "postgresql":
        yield
        return
    text = (
        "SELECT set_config(name, %(limit)s, true) FROM pg_settings "
        "WHERE name = 'statement_timeout' "
        "AND setting::bigint NOT BETWEEN 1 AND %(limit)s::bigint"
    )
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(text, {"limit": _milliseconds(seconds)})
        yield


def require_answer(seconds: float) -> None:
    """Open a new connection to the default database and close it. Raises
    `OperationalError` where PostgreSQL does not let one in, or takes longer than these
    seconds for it; libpq takes 2 s for the least.
    """
    link = connection.copy()
    if link.vendor == "postgresql":
        link.settings_dict["OPTIONS"]["connect_timeout"] = round(seconds)
    try:
        link.ensure_connection()
    finally:
        link.close()


def _of_the_client() -> dict[str, int]:
    """Return options of libpq with which a server that vanished is noticed within about
    a lease.
    """
    # A third of silence, then two probes a third apart without an answer: a lease.
    third = max(1, round(conf().lease_seconds / 3))
    return {
        "keepalives": 1,
        "keepalives_idle": third,
        "keepalives_interval": third,
        "keepalives_count": 2,
        # No probes are sent while data waits to be acknowledged; this ends that wait.
        "tcp_user_timeout": round(conf().lease_seconds * 1000),
    }


def _of_the_server() -> dict[str, str]:
    """Return the server's settings for one session with which a client that froze or
    vanished is noticed within a lease.
    """
    client = _of_the_client()
    settings = {_IDLE: _milliseconds(idle_seconds())}
    for name, value in client.items():
        if name.startswith("keepalives_"):
            settings[f"tcp_{name}"] = str(value)
    settings["tcp_user_timeout"] = str(client["tcp_user_timeout"])
    return settings


_STRICTER = "s.setting::bigint NOT BETWEEN 1 AND w.given::bigint"
"""0 is no limit; a shorter one that is set already stays."""


def _limit(connection: BaseDatabaseWrapper, **_: Any) -> None:
    # Runs are in the default database; others of a host project are left alone.
    if connection.vendor != "postgresql" or connection.alias != DEFAULT_DB_ALIAS:
        return
    limits = _of_the_server()
    places = ", ".join(["(%s, %s)"] * len(limits))
    text = (
        "SELECT set_config(s.name, w.given, false) "  # noqa: S608
        f"FROM (VALUES {places}) AS w (name, given) "
        f"JOIN pg_settings AS s ON s.name = w.name WHERE {_STRICTER}"
    )
    params: list[str] = []
    for name, value in limits.items():
        params += [name, value]
    try:
        with connection.cursor() as cursor:
            cursor.execute(text, params)
    except Error:
        # Left open, it would be used without limits.
        connection.close()
        raise


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
