"""Reading settings from the environment."""

import os
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from orchestrator import environment

SOMEWHERE = Path("countersign.sqlite3")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("COUNTERSIGN_SECRET_KEY", "COUNTERSIGN_DEMO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COUNTERSIGN_DATA_DIR", str(tmp_path / "var"))
    return tmp_path / "var"


def database(url: str) -> dict[str, object]:
    return environment.database(url, sqlite_default=SOMEWHERE)


def test_without_a_url_the_rows_are_in_sqlite() -> None:
    assert (database("")["ENGINE"], database("")["NAME"]) == ("django.db.backends.sqlite3", SOMEWHERE)


PREPARED = {"server_side_binding": True, "prepare_threshold": 1}


def test_a_sqlite_url_names_a_file_absolute_or_from_the_project() -> None:
    assert database("sqlite:////srv/runs.sqlite3")["NAME"] == Path("/srv/runs.sqlite3")
    assert database("sqlite:///runs.sqlite3")["NAME"] == environment.ROOT / "runs.sqlite3"


def test_a_postgres_url_is_taken_apart_and_unquoted() -> None:
    found = database("postgresql://ann%40x:p%2Fw@db.example.org:6543/run%20s?sslmode=require")
    assert {name: found[name] for name in ("USER", "PASSWORD", "HOST", "PORT", "NAME", "OPTIONS")} == {
        "USER": "ann@x",
        "PASSWORD": "p/w",
        "HOST": "db.example.org",
        "PORT": "6543",
        "NAME": "run s",
        "OPTIONS": {**PREPARED, "sslmode": "require"},
    }


def test_prepared_statements_can_be_turned_off_for_a_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSIGN_PREPARED_STATEMENTS", "off")
    assert database("postgres://ann@db.example.org/runs")["OPTIONS"] == {}


def test_a_postgres_url_may_name_a_unix_socket() -> None:
    found = database("postgres://postgres@/countersign?host=/run/pg%20x")
    assert (found["HOST"], found["PORT"], found["OPTIONS"]) == ("/run/pg x", "", PREPARED)


@pytest.mark.parametrize(
    "url", ["postgres://u:hidden@h:port/n", "postgres://u:hidden@h/", "hidden", "postgres://h/n?hidden"]
)
def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL") as refusal:
        database(url)
    assert "hidden" not in str(refusal.value)


def test_a_secret_key_is_made_once_and_kept_for_its_owner_only(folder: Path) -> None:
    key = environment.secret_key(generate=True)
    assert len(key) > 50
    assert environment.secret_key(generate=True) == key
    assert (folder / "secret_key").stat().st_mode & 0o777 == 0o600


def test_a_short_secret_key_is_refused_without_repeating_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSIGN_SECRET_KEY", "hunter2")
    with pytest.raises(ImproperlyConfigured, match="at least 32 characters, not 7") as refusal:
        environment.secret_key(generate=True)
    assert "hunter2" not in str(refusal.value)


def test_a_demo_is_remembered_by_its_folder_until_it_is_switched_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not environment.demo()
    environment.enter_demo()
    assert os.environ["COUNTERSIGN_DEMO"] == "true"
    monkeypatch.delenv("COUNTERSIGN_DEMO")
    assert environment.demo()
    monkeypatch.setenv("COUNTERSIGN_DEMO", "off")
    assert not environment.demo()


def test_a_folder_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COUNTERSIGN_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(ImproperlyConfigured, match=r"COUNTERSIGN_DATA_DIR: cannot use .*file \(File exists\)"):
        environment.data_dir()


@pytest.mark.parametrize(("value", "meant"), [("", 3), (" 7 ", 7), ("1e1", 10)])
def test_whole_numbers_are_read(monkeypatch: pytest.MonkeyPatch, value: str, meant: int) -> None:
    monkeypatch.setenv("SOME_NUMBER", value)
    assert environment.whole("SOME_NUMBER", default=3) == meant


@pytest.mark.parametrize("value", ["1.5", "nan", "inf", "-1", "x"])
def test_what_is_no_whole_number_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOME_NUMBER", value)
    with pytest.raises(ImproperlyConfigured, match=f"SOME_NUMBER must be .*, not '{value}'"):
        environment.whole("SOME_NUMBER", default=3)


@pytest.mark.parametrize("value", ["[1]", '{"a": 1}', "{hidden", '"hidden"'])
def test_secrets_that_are_no_object_of_texts_are_refused_without_repeating_them(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SOME_SECRETS", value)
    with pytest.raises(
        ImproperlyConfigured, match="SOME_SECRETS must be a JSON object whose values are texts"
    ) as refusal:
        environment.strings("SOME_SECRETS")
    assert "hidden" not in str(refusal.value)


def test_only_what_is_set_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSIGN_LEASE_SECONDS", "2.5")
    monkeypatch.delenv("COUNTERSIGN_WORKERS", raising=False)
    assert environment.given(LEASE_SECONDS=environment.number, WORKERS=environment.whole) == {"LEASE_SECONDS": 2.5}


def test_redis_without_its_driver_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSIGN_REDIS_URL", "redis://:hidden@cache.example.org")
    assert environment.redis_url() == "redis://:hidden@cache.example.org"
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(ImproperlyConfigured, match="COUNTERSIGN_REDIS_URL .* the package redis is missing") as refusal:
        environment.redis_url()
    assert "hidden" not in str(refusal.value)
