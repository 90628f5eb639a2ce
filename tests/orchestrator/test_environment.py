"""Reading settings from the environment."""

import os
import secrets
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from orchestrator import environment
from orchestrator.environment import Environment

NO_JSON_OBJECT = "must be a JSON object that names nothing twice"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("COUNTERSIGN_SECRET_KEY", "COUNTERSIGN_DEMO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COUNTERSIGN_DATA_DIR", str(tmp_path / "var"))
    return tmp_path / "var"


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`database(url)` is Django's settings of it."""

    def read(url: str) -> dict[str, Any]:
        monkeypatch.setenv("DATABASE_URL", url)
        return Environment.read().database()

    return read


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`refusal(name, value)` is the sentence that refuses the variable."""

    def read(name: str, value: str) -> str:
        monkeypatch.setenv(name, value)
        with pytest.raises(ImproperlyConfigured) as refused:
            Environment.read()
        return str(refused.value)

    return read


def test_without_a_url_the_rows_are_in_sqlite(folder: Path, database: Any) -> None:
    assert database("")["ENGINE"] == "django.db.backends.sqlite3"
    assert database("")["NAME"] == folder / "countersign.sqlite3"


def test_static_files_lie_in_the_data_folder_unless_another_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Environment.read().static_dir is None
    monkeypatch.setenv("COUNTERSIGN_STATIC_DIR", str(folder / "elsewhere"))
    assert Environment.read().static_dir == folder / "elsewhere"


def test_a_folder_for_static_files_that_cannot_be_used_is_refused(
    folder: Path, tmp_path: Path, refusal: Any
) -> None:
    (tmp_path / "file").touch()
    sentence = refusal("COUNTERSIGN_STATIC_DIR", str(tmp_path / "file"))
    assert sentence.startswith("COUNTERSIGN_STATIC_DIR must be a folder")


PREPARED = {"server_side_binding": True, "prepare_threshold": 1}


def test_a_sqlite_url_names_a_file_absolute_or_from_the_project(database: Any) -> None:
    assert database("sqlite:////srv/runs.sqlite3")["NAME"] == Path("/srv/runs.sqlite3")
    assert (
        database("sqlite:///runs.sqlite3")["NAME"] == environment.ROOT / "runs.sqlite3"
    )


def test_a_postgres_url_is_taken_apart_and_unquoted(database: Any) -> None:
    options = database(
        "postgresql://ann%40x:p%2Fw@db.example.org:6543/run%20s?sslmode=require"
    )
    assert {
        name: options[name]
        for name in ("USER", "PASSWORD", "HOST", "PORT", "NAME", "OPTIONS")
    } == {
        "USER": "ann@x",
        "PASSWORD": "p/w",
        "HOST": "db.example.org",
        "PORT": "6543",
        "NAME": "run s",
        "OPTIONS": {**PREPARED, "sslmode": "require"},
    }


def test_prepared_statements_can_be_turned_off_for_a_pooler(
    monkeypatch: pytest.MonkeyPatch, database: Any
) -> None:
    monkeypatch.setenv("COUNTERSIGN_PREPARED_STATEMENTS", "off")
    assert database("postgres://ann@db.example.org/runs")["OPTIONS"] == {}


def test_a_pool_is_named_by_its_size(
    monkeypatch: pytest.MonkeyPatch, database: Any
) -> None:
    monkeypatch.setenv("COUNTERSIGN_DATABASE_POOL", "4")
    options = database("postgres://ann@db.example.org/runs")["OPTIONS"]
    assert options["pool"] == {"min_size": 1, "max_size": 4}


def test_a_postgres_url_may_name_a_unix_socket(database: Any) -> None:
    options = database("postgres://postgres@/countersign?host=/run/pg%20x")
    assert options["HOST"] == "/run/pg x"
    assert options["PORT"] == ""
    assert options["OPTIONS"] == PREPARED


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u:hidden@h:port/n",
        "postgres://u:hidden@h/",
        "hidden",
        "postgres://h/n?hidden",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(
    url: str, refusal: Any
) -> None:
    sentence = refusal("DATABASE_URL", url)
    assert sentence.startswith("DATABASE_URL ")
    assert "hidden" not in sentence


def test_a_secret_key_is_made_once_and_kept_for_its_owner_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERSIGN_DEMO", "true")
    key = Environment.read().key()
    assert len(key) > 50
    assert Environment.read().key() == key
    assert (folder / "secret_key").stat().st_mode & 0o777 == 0o600


def test_a_secret_key_is_made_where_the_file_system_has_no_links(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setenv("COUNTERSIGN_DEMO", "true")
    monkeypatch.setattr(os, "link", refuse)
    key = Environment.read().key()
    assert len(key) > 50
    assert Environment.read().key() == key
    assert (folder / "secret_key").stat().st_mode & 0o777 == 0o600


def test_two_processes_that_make_the_secret_key_at_once_get_the_same_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERSIGN_DEMO", "true")
    keys: list[str] = []
    make = secrets.token_urlsafe

    def meanwhile(size: int) -> str:
        monkeypatch.setattr(secrets, "token_urlsafe", make)
        keys.append(Environment.read().key())
        return make(size)

    monkeypatch.setattr(secrets, "token_urlsafe", meanwhile)
    keys.append(Environment.read().key())
    assert len(keys[0]) > 50
    assert keys[0] == keys[1]
    assert [file.name for file in folder.iterdir()] == ["secret_key"]


def test_a_short_secret_key_is_refused_without_repeating_it(
    folder: Path, refusal: Any
) -> None:
    assert refusal("COUNTERSIGN_SECRET_KEY", "hunter2") == (
        "COUNTERSIGN_SECRET_KEY must have at least 32 characters, not 7"
    )


def test_a_demo_is_remembered_by_its_folder_until_it_is_switched_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not Environment.read().is_demo
    environment.enter_demo()
    assert os.environ["COUNTERSIGN_DEMO"] == "true"
    monkeypatch.delenv("COUNTERSIGN_DEMO")
    assert Environment.read().is_demo
    monkeypatch.setenv("COUNTERSIGN_DEMO", "off")
    assert not Environment.read().is_demo


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, refusal: Any) -> None:
    (tmp_path / "file").touch()
    sentence = refusal("COUNTERSIGN_DATA_DIR", str(tmp_path / "file"))
    assert sentence.startswith("COUNTERSIGN_DATA_DIR must be a folder")
    assert sentence.endswith("file (File exists)")


@pytest.mark.parametrize(("value", "meant"), [("", 2), (" 7 ", 7), ("1e1", 10)])
def test_whole_numbers_are_read(
    monkeypatch: pytest.MonkeyPatch, value: str, meant: int
) -> None:
    monkeypatch.setenv("COUNTERSIGN_WORKERS", value)
    assert Environment.read().workers == meant


@pytest.mark.parametrize("value", ["1.5", "nan", "inf", "-1", "x"])
def test_what_is_no_whole_number_is_refused(value: str, refusal: Any) -> None:
    assert refusal("COUNTERSIGN_WORKERS", value) == (
        f"COUNTERSIGN_WORKERS must be a whole number that is 1 or greater, not '{value}'"
    )


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("[1]", f"COUNTERSIGN_SECRETS {NO_JSON_OBJECT}"),
        ("{hidden", f"COUNTERSIGN_SECRETS {NO_JSON_OBJECT}"),
        ('{"a": "hidden", "a": "x"}', f"COUNTERSIGN_SECRETS {NO_JSON_OBJECT}"),
        ('{"a": ["hidden"]}', "COUNTERSIGN_SECRETS['a'] must be a text, not list"),
    ],
)
def test_secrets_that_are_no_object_of_texts_are_refused_without_repeating_them(
    value: str, sentence: str, refusal: Any
) -> None:
    assert refusal("COUNTERSIGN_SECRETS", value) == sentence


def test_the_dictionary_has_only_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSIGN_LEASE_SECONDS", "2.5")
    monkeypatch.setenv("COUNTERSIGN_WORKERS", " ")
    monkeypatch.delenv("COUNTERSIGN_ENVIRONMENT", raising=False)
    monkeypatch.setenv("COUNTERSIGN_DOORBELL", "no.variable.of.ours")
    assert Environment.read().countersign() == {
        "LEASE_SECONDS": 2.5,
        "ENVIRONMENT": "Demo",
    }


@pytest.mark.parametrize(
    ("name", "value", "package"),
    [
        ("COUNTERSIGN_REDIS_URL", "redis://:hidden@cache.example.org", "redis"),
        ("DATABASE_URL", "postgres://u:hidden@h/n", "psycopg"),
        ("COUNTERSIGN_DATABASE_POOL", "4", "psycopg_pool"),
    ],
)
def test_what_needs_a_package_that_is_missing_is_refused_by_name(
    name: str,
    value: str,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Any,
) -> None:
    monkeypatch.setattr(
        environment, "find_spec", lambda name: None if name == package else name
    )
    sentence = refusal(name, value)
    assert sentence.startswith(f"{name} is set, but the package {package} is missing")
    assert "hidden" not in sentence
