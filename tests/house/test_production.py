"""The project as it is in production: refuses half a configuration, and passes Django's
own deployment checks.
"""

from pathlib import Path

import pytest

from tests.house.commands import PRODUCTION, manage


def test_the_deployment_check_finds_nothing(tmp_path: Path) -> None:
    done = manage(
        "check",
        "--deploy",
        "--fail-level=WARNING",
        COUNTERSIGN_DATA_DIR=tmp_path,
        **PRODUCTION,
    )
    assert done.returncode == 0, done.stderr


def test_the_models_and_the_migrations_agree(tmp_path: Path) -> None:
    done = manage(
        "makemigrations",
        "--check",
        "--dry-run",
        COUNTERSIGN_DATA_DIR=tmp_path,
        COUNTERSIGN_DEMO="true",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_production_does_not_start_without_a_secret_key(tmp_path: Path) -> None:
    done = manage("check", COUNTERSIGN_DATA_DIR=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Bad settings: COUNTERSIGN_SECRET_KEY is missing")
    assert len(done.stderr.splitlines()) == 1


def test_a_remembered_demo_does_not_count_where_a_secret_key_is_given(
    tmp_path: Path,
) -> None:
    (tmp_path / "demo").touch()
    code = "from django.conf import settings; print(settings.DEMO)"
    assert (
        manage("shell", "-v0", "-c", code, COUNTERSIGN_DATA_DIR=tmp_path).stdout.strip()
        == "True"
    )
    assert (
        manage(
            "shell", "-v0", "-c", code, COUNTERSIGN_DATA_DIR=tmp_path, **PRODUCTION
        ).stdout.strip()
        == "False"
    )


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "COUNTERSIGN_DEBUG",
            "maybe",
            "must be true or false, not 'maybe'",
        ),
        (
            "COUNTERSIGN_WORKERS",
            "two",
            "must be a whole number that is 1 or greater, not 'two'",
        ),
        (
            "COUNTERSIGN_LOG_LEVEL",
            "loud",
            "must be one of DEBUG, INFO, WARNING, ERROR, not 'loud'",
        ),
        (
            "DATABASE_URL",
            "mysql://u:hidden@h/n",
            "must be postgres://user:password@host:port/name or sqlite:///path",
        ),
    ],
)
def test_a_bad_value_ends_every_command_with_one_sentence(
    tmp_path: Path, name: str, value: str, sentence: str
) -> None:
    done = manage("check", COUNTERSIGN_DATA_DIR=tmp_path, **{**PRODUCTION, name: value})
    assert done.returncode == 1
    assert done.stderr.strip() == f"Bad settings: {name} {sentence}"


def test_production_logs_one_json_object_a_line(tmp_path: Path) -> None:
    code = "import json, logging; logging.getLogger('some.place').warning('paid %s', 3)"
    done = manage(
        "shell", "-v0", "-c", code, COUNTERSIGN_DATA_DIR=tmp_path, **PRODUCTION
    )
    assert '"event": "paid 3"' in done.stderr
    assert '"logger": "some.place"' in done.stderr
    assert '"level": "warning"' in done.stderr
