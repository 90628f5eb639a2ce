"""How long somebody who freezes or vanishes inside a transaction may keep its locks. PostgreSQL only: a server can end
the transactions of others. What holds a lock on SQLite is a process of this host, and nobody can take it away.
"""

from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import CharField, Func, Model, QuerySet, Value

from checkpoints.conf import conf

Row = TypeVar("Row", bound=Model)

LOCK_SECONDS = 5.0
"""What a person's act waits for a lock that somebody else has: a page must answer."""
_IDLE = "idle_in_transaction_session_timeout"


def idle_seconds() -> float:
    """After so long without a statement the server ends a transaction: before the lease of its owner runs out, and
    later than an atomic node may take.
    """
    return conf().lease_seconds * 2 / 3


def limit_connections() -> None:
    """Let each connection to the default database that is opened from now on, in this process and in those forked from
    it, end where its owner or its server freezes or vanishes. For processes that do nothing but work on runs.
    """
    options: dict[str, Any] = connections[DEFAULT_DB_ALIAS].settings_dict["OPTIONS"]
    if connections[DEFAULT_DB_ALIAS].vendor == "postgresql":
        for name, value in _of_the_client().items():
            options.setdefault(name, value)
    connection_created.connect(_limit, dispatch_uid="checkpoints.db.limits")


def within_limits(rows: "QuerySet[Row]") -> "QuerySet[Row]":
    """The query, which waits for locks no longer than `LOCK_SECONDS`, then raises `OperationalError`; and from which on
    its transaction may not be idle longer than `idle_seconds`. It costs no statement of its own.
    """
    if connections[DEFAULT_DB_ALIAS].vendor != "postgresql":
        return rows
    limits = {"lock_timeout": LOCK_SECONDS, _IDLE: idle_seconds()}
    # A row passes the condition before it is locked. True: until the transaction ends.
    said = {
        f"{name}_said": Func(
            Value(name), Value(_ms(seconds)), Value(True), function="set_config", output_field=CharField()
        )
        for name, seconds in limits.items()
    }
    bounded: QuerySet[Row] = rows.alias(**said).filter(**{f"{name}__isnull": False for name in said})
    return bounded


def _of_the_client() -> dict[str, int]:
    """Options of libpq: a server that vanished is noticed within about a lease."""
    third = max(1, round(conf().lease_seconds / 3))
    beats = {"keepalives": 1, "keepalives_idle": third, "keepalives_interval": third, "keepalives_count": 2}
    return {**beats, "tcp_user_timeout": round(conf().lease_seconds * 1000)}


def _of_the_server() -> dict[str, str]:
    """Its settings for one session: a client that froze or vanished is noticed within a lease."""
    client = _of_the_client()
    tcp = {f"tcp_{name}": str(value) for name, value in client.items() if name.startswith("keepalives_")}
    return {_IDLE: _ms(idle_seconds()), **tcp, "tcp_user_timeout": str(client["tcp_user_timeout"])}


_STRICTER = "s.setting::bigint NOT BETWEEN 1 AND w.given::bigint"
"""0 is no limit; whoever set a shorter one keeps it."""


def _limit(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor != "postgresql" or connection.alias != DEFAULT_DB_ALIAS:
        return
    limits = _of_the_server()
    wanted = ", ".join(["(%s, %s)"] * len(limits))
    text = (
        f"SELECT set_config(s.name, w.given, false) FROM (VALUES {wanted}) AS w (name, given)"  # noqa: S608
        f" JOIN pg_settings AS s ON s.name = w.name WHERE {_STRICTER}"
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(text, [word for pair in limits.items() for word in pair])
    except Error:
        # Half-opened it would be used without limits.
        connection.close()
        raise


def _ms(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
