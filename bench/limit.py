"""The commit limit of a database: one 1 KB insert a commit, on the same connection settings. What nothing durable can
beat.
"""

import time

from django.db import connection


def commits_per_second(number: int) -> float:
    """Commits a second, over `number` of them."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS bench_limit (id integer, body text)")
        cursor.execute("DELETE FROM bench_limit")
        begun = time.perf_counter()
        for n in range(number):
            cursor.execute("INSERT INTO bench_limit VALUES (%s, %s)", [n, "x" * 1024])
        took = time.perf_counter() - begun
        cursor.execute("SELECT count(*) FROM bench_limit")
        assert cursor.fetchone()[0] == number
    return number / took
