"""What the PostgreSQL server spent on a database: CPU of its backends, and fsyncs of
the write-ahead log.
"""

from contextlib import closing
from pathlib import Path

from bench.places import Place


def cpu_seconds(place: Place) -> float:
    """CPU time of all backends that are connected to it now, to the nanosecond. 0 on
    SQLite, which has no server.
    """
    if place.vendor == "sqlite":
        return 0.0
    query = (
        "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        " AND pid <> pg_backend_pid()"
    )
    with closing(place.connect()) as link:
        pids = [row[0] for row in link.execute(query, [place.name])]
    return (
        sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids)
        / 1e9
    )


def wal_fsyncs(place: Place) -> int:
    """Return the fsyncs of the WAL by client backends of the whole server, since it
    started. A backend adds its own when it ends.
    """
    with closing(place.connect()) as link:
        if link.info.server_version >= 180000:
            query = (
                "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND"
                " backend_type = 'client backend'"
            )
        else:
            query = "SELECT wal_sync FROM pg_stat_wal"
        return int(link.execute(query).fetchone()[0])


def connected(place: Place) -> int:
    """Return how many clients besides the asking one are connected to it, or make
    databases.
    """
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname IN (%s, 'postgres') AND"
        " backend_type = 'client backend'"
        " AND pid <> pg_backend_pid()"
    )
    with closing(place.connect()) as link:
        return int(link.execute(query, [place.name]).fetchone()[0])
