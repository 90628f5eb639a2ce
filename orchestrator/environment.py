"""Settings from environment variables, typed; a bad value is refused with one sentence that names the variable.

Called by `orchestrator.settings` and `manage.py`. It never reads Django's settings, which do not exist yet then.
"""

import os
import secrets
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from checkpoints.core.strict_json import parse_strict

ROOT = Path(__file__).resolve().parent.parent
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def text(name: str, default: str = "") -> str:
    """The variable without surrounding blanks; `default` where it is unset or empty."""
    return os.environ.get(name, "").strip() or default


def flag(name: str, default: bool = False) -> bool:
    """A switch. Raises `ImproperlyConfigured` for anything but the usual words for yes and no."""
    word = text(name).lower()
    if not word:
        return default
    if word not in YES + NO:
        raise _refused(name, f"one of {', '.join(YES + NO)}")
    return word in YES


def number(name: str, *, default: float = 0.0, least: float = 0.0) -> float:
    """A number that is at least `least`. Raises `ImproperlyConfigured`."""
    try:
        value = float(text(name) or default)
    except ValueError:
        raise _refused(name, "a number") from None
    if not least <= value < float("inf"):
        raise _refused(name, f"a number of at least {least:g}")
    return value


def whole(name: str, *, default: int = 0, least: int = 0) -> int:
    """A whole number that is at least `least`. Raises `ImproperlyConfigured`."""
    value = number(name, default=default, least=least)
    if value != int(value):
        raise _refused(name, "a whole number")
    return int(value)


def words(name: str, default: tuple[str, ...] = ()) -> list[str]:
    """A list separated by commas."""
    return [word.strip() for word in text(name).split(",") if word.strip()] or list(default)


def choice(name: str, *, default: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`. Raises `ImproperlyConfigured`."""
    value = text(name, default)
    if value not in allowed:
        raise _refused(name, f"one of {', '.join(allowed)}")
    return value


def strings(name: str) -> dict[str, str]:
    """A JSON object of texts, `{}` where it is unset. Raises `ImproperlyConfigured` without repeating the value."""
    return _json_object(name, str, "texts")


def objects(name: str) -> dict[str, dict[str, Any]]:
    """A JSON object of objects, `{}` where it is unset. Raises `ImproperlyConfigured` without repeating the value."""
    return _json_object(name, dict, "objects")


def _json_object(name: str, kind: type, what: str) -> dict[str, Any]:
    wanted = ImproperlyConfigured(f"{name} must be a JSON object whose values are {what}")
    try:
        value = parse_strict(text(name, "{}"))
    except ValueError:
        raise wanted from None
    if not isinstance(value, dict) or not all(isinstance(each, kind) for each in value.values()):
        raise wanted
    return value


def given(**readers: Callable[[str], Any]) -> dict[str, Any]:
    """What COUNTERSIGN_<NAME> says, for each name that is set."""
    return {name: read(f"COUNTERSIGN_{name}") for name, read in readers.items() if text(f"COUNTERSIGN_{name}")}


def data_dir() -> Path:
    """The folder for everything this installation writes, made if it is missing. Raises `ImproperlyConfigured`."""
    folder = Path(text("COUNTERSIGN_DATA_DIR", str(ROOT / "var"))).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"COUNTERSIGN_DATA_DIR: cannot use {folder} ({error.strerror})") from None
    return folder


def enter_demo() -> None:
    """Turn the demo on, for this process and for later commands on the same data folder."""
    os.environ["COUNTERSIGN_DEMO"] = "true"
    (data_dir() / "demo").touch()


def sign_ins_file() -> Path:
    """Return the file in which the demo keeps who can sign in."""
    return data_dir() / "sign-ins.txt"


def demo() -> bool:
    """Whether this is the demo: by COUNTERSIGN_DEMO, else because `up --demo` ran on this data folder.

    A given secret key marks a real installation, where the remembered demo does not count.
    """
    return flag("COUNTERSIGN_DEMO", default=not text("COUNTERSIGN_SECRET_KEY") and (data_dir() / "demo").exists())


def secret_key(*, generate: bool) -> str:
    """COUNTERSIGN_SECRET_KEY, or with `generate` one that is made once and kept in the data folder.

    Raises `ImproperlyConfigured` where there is none, or a short one.
    """
    given = text("COUNTERSIGN_SECRET_KEY")
    if given and len(given) < 32:
        raise ImproperlyConfigured(f"COUNTERSIGN_SECRET_KEY must have at least 32 characters, not {len(given)}")
    if given:
        return given
    if not generate:
        raise ImproperlyConfigured(
            "COUNTERSIGN_SECRET_KEY is missing: set it to a long random text"
            " (for development set COUNTERSIGN_DEBUG=true instead, and one is made for you)"
        )
    return _kept_key(data_dir() / "secret_key")


def database(url: str, *, sqlite_default: Path) -> dict[str, Any]:
    """Django's settings of the database at `url`; SQLite in `sqlite_default` where it is empty.

    Forms: `postgres://user:password@host:port/name`, with `?host=/folder` for a Unix socket and further libpq options,
    and `sqlite:///path`. Raises `ImproperlyConfigured` without repeating the URL, which may hold a password.
    """
    if not url:
        return _sqlite(sqlite_default)
    try:
        parts = urlsplit(url)
        port = parts.port
        options: dict[str, Any] = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ImproperlyConfigured("DATABASE_URL cannot be read as a URL") from None
    name = unquote(parts.path.removeprefix("/"))
    if not name or parts.scheme not in ("postgres", "postgresql", "sqlite"):
        raise ImproperlyConfigured("DATABASE_URL must be postgres://user:password@host:port/name or sqlite:///path")
    if parts.scheme == "sqlite":
        return _sqlite(ROOT / name)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", unquote(parts.hostname or "")),
        "PORT": options.pop("port", str(port or "")),
        # Parameters and prepared statements on the server: half the cost of a superstep's commit. A pooler that hands
        # each transaction to another connection cannot have them.
        "OPTIONS": {**_prepared(), **_pool(), **options},
        "CONN_HEALTH_CHECKS": True,
    }


def redis_url() -> str:
    """Return COUNTERSIGN_REDIS_URL, empty where it is unset. Raises `ImproperlyConfigured` where no driver is there."""
    url = text("COUNTERSIGN_REDIS_URL")
    if url and find_spec("redis") is None:
        raise ImproperlyConfigured("COUNTERSIGN_REDIS_URL is set, but the package redis is missing: pip install redis")
    return url


def _prepared() -> dict[str, Any]:
    prepared = flag("COUNTERSIGN_PREPARED_STATEMENTS", default=True)
    return {"server_side_binding": True, "prepare_threshold": 1} if prepared else {}


def _pool() -> dict[str, Any]:
    """Return psycopg's pool as an option of the database, where one is named. Workers leave it out."""
    size = whole("COUNTERSIGN_DATABASE_POOL")
    return {"pool": {"min_size": 1, "max_size": size}} if size else {}


def _sqlite(path: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # Without IMMEDIATE two transactions that read and then write fail at once, whatever the timeout;
        # without FULL a power cut may lose the intent of an effect that then happened.
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-20000;",
        },
    }


def _kept_key(path: Path) -> str:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(handle, "w") as file:
        file.write(key := secrets.token_urlsafe(64))
    return key


def _refused(name: str, wanted: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} must be {wanted}, not {os.environ[name]!r}")
