"""The variables of the environment, each declared once: type, default and meaning. A value
that cannot be used is refused with one sentence that names its variable.

Called by `orchestrator.settings` and `manage.py`. It never reads Django's settings,
which do not exist yet then.
"""

import os
import re
import secrets
import sys
import tempfile
import zoneinfo
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from checkpoints.conf import Variables
from checkpoints.core.setting_types import (
    PositiveNumber,
    Switch,
    WholeFromOne,
    WholeFromZero,
    first_fault,
    must_be,
)
from checkpoints.core.strict_json import parse_strict

ROOT: Path = Path(__file__).resolve().parent.parent
LEAST_SECRET_KEY = 32
"""The fewest characters of a secret key."""
IN_JSON = (
    "payloads",
    "secrets",
    "signing_keys",
    "encryption_keys",
    "trusted_keys",
    "compromised_keys",
    "company_groups",
)
"""Variables that hold a JSON object."""


def variable_of(name: str) -> str:
    """Return the variable that gives a setting."""
    return f"COUNTERSIGN_{name.upper()}"


def _words_between_commas(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if not re.match(r"https?://.", origin):
            raise ValueError(
                f"must be origins with their scheme, as https://{origin}, not {origin!r}"
            )
    return origins


def _long_secret(text: str) -> str:
    if text and len(text) < LEAST_SECRET_KEY:
        raise ValueError(
            f"must have at least {LEAST_SECRET_KEY} characters, not {len(text)}"
        )
    return text


def _folder(path: Path) -> Path:
    """Return the folder, made if it is missing."""
    folder = path.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"must be a folder that can be written: cannot use {folder}"
            f" ({error.strerror})"
        ) from None
    return folder


def _address_of_database(url: str) -> str:
    """Check the URL without repeating it: it may hold a password."""
    try:
        parts = urlsplit(url)
        # Only reading the port reveals one that is no number.
        _ = parts.port
        parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError("cannot be read as a URL") from None
    if not parts.path.removeprefix("/") or parts.scheme not in (
        "postgres",
        "postgresql",
        "sqlite",
    ):
        raise ValueError(
            "must be postgres://user:password@host:port/name or sqlite:///path"
        )
    if parts.scheme != "sqlite":
        _require_package("psycopg", "psycopg[binary]")
    return url


def _address_of_redis(url: str) -> str:
    """Check the URL without repeating it: it may hold a password."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("must begin with redis://, rediss:// or unix://")
    _require_package("redis", "redis")
    return url


def _pool_size(size: int) -> int:
    if size:
        _require_package("psycopg_pool", "psycopg[pool]")
    return size


def _require_package(name: str, distribution: str) -> None:
    if find_spec(name) is None:
        raise ValueError(
            f"is set, but the package {name} is missing: pip install '{distribution}'"
        )


def _time_zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(
            f"must be a name of the tz database, as Europe/Berlin, not {name!r}"
        ) from None
    return name


def _address_of_page(url: str) -> str:
    if not re.match(r"https?://.", url):
        raise ValueError("must begin with http:// or https://")
    return url


Names = Annotated[tuple[str, ...], BeforeValidator(_words_between_commas)]
BodyBytes = Annotated[
    WholeFromOne, Field(ge=1024), must_be("a whole number that is 1024 or greater")
]
Pause = Annotated[PositiveNumber, Field(ge=1), must_be("a number that is 1 or greater")]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"],
    must_be("one of DEBUG, INFO, WARNING, ERROR"),
]


class Environment(Variables, BaseSettings):
    """The variables of one process. Those that are unset or blank have their defaults.
    The descriptions are those of docs/configuration.md.
    """

    model_config = SettingsConfigDict(
        alias_generator=variable_of,
        case_sensitive=True,
        # JSON is read strictly, below.
        enable_decoding=False,
        # All values are texts here.
        strict=False,
        validate_default=False,
    )

    debug: Switch = Field(
        False,
        description="Django's debug pages; a secret key is made and kept in the data folder",
    )
    demo: Switch | None = Field(
        None,
        description="the two demo apps are installed; a secret key is made; loopback only",
    )
    secret_key: Annotated[str, AfterValidator(_long_secret)] = Field(
        "",
        repr=False,
        description="at least 32 characters; signs sessions and whatever has no key of its own",
    )
    allowed_hosts: Names = Field((), description="host names that are answered")
    trusted_origins: Annotated[Names, AfterValidator(_origins)] = Field(
        (),
        description="origins of forms, with scheme, where a proxy changes the host name",
    )
    data_dir: Annotated[Path, AfterValidator(_folder)] = Field(
        ROOT / "var",
        validate_default=True,
        description=(
            "where SQLite, uploaded files, collected static files and made-up keys are; "
            "nothing is written elsewhere but to the places that "
            "`COUNTERSIGN_ARCHIVE_FOLDER`, `COUNTERSIGN_AUDIT_HEAD_FILE` and "
            "`COUNTERSIGN_PAYLOADS` name"
        ),
    )
    static_dir: Annotated[Path, AfterValidator(_folder)] | None = Field(
        None,
        description=(
            "where `collectstatic` puts the static files, and web processes read them; "
            "an image that brings them names a folder of its own"
        ),
    )
    database_url: Annotated[str, AfterValidator(_address_of_database)] = Field(
        "",
        alias="DATABASE_URL",
        repr=False,
        description=(
            "`postgres://user:password@host:port/name`, "
            "`postgres://user@/name?host=/folder/of/the/socket`, or `sqlite:///path`; "
            "further parameters go to libpq (`?sslmode=require`)"
        ),
    )
    prepared_statements: Switch = Field(
        True,
        description=(
            "PostgreSQL keeps prepared statements for each connection, which halves the "
            "cost of a commit; turn it off behind a pooler that gives each transaction "
            "another connection (transaction mode)"
        ),
    )
    database_pool: Annotated[WholeFromZero, AfterValidator(_pool_size)] = Field(
        0,
        description=(
            "the most connections that a web process keeps in a pool on PostgreSQL "
            "(needs `psycopg[pool]`); without it each request opens one and closes it"
        ),
    )
    redis_url: Annotated[str, AfterValidator(_address_of_redis)] = Field(
        "",
        repr=False,
        description=(
            "optional, needs the package `redis`: sessions are then cached there for a "
            "minute, and read from the database where the cache has lost them or is "
            "down"
        ),
    )
    https: Switch | None = Field(
        None, description="redirect to HTTPS, secure cookies, HSTS"
    )
    hsts_seconds: WholeFromZero = Field(
        3600, description="how long browsers insist on HTTPS; raise it when all works"
    )
    behind_proxy: Switch = Field(
        False,
        description="trust `X-Forwarded-Proto`; only behind a proxy that always sets it",
    )
    login_failures: WholeFromOne = Field(
        5,
        description=(
            "wrong passwords for one name at one address after which its log-ins are "
            "refused; ten times as many for a name or an address alone "
            "([throttles](deployment.md#throttles))"
        ),
    )
    login_pause_seconds: Pause = Field(900.0, description="for how long")
    max_body_bytes: BodyBytes = Field(
        8 * 1024 * 1024, description="largest request body that is not a file"
    )
    time_zone: Annotated[str, AfterValidator(_time_zone)] = Field(
        "UTC", description="a name of the tz database"
    )
    log_level: LogLevel = Field(
        "INFO", description="`DEBUG`, `INFO`, `WARNING` or `ERROR`"
    )
    alive_file: Path | None = Field(
        None,
        description=(
            "a file that the main process of a worker touches once a second, which "
            "[the probe](containers.md#the-image) of a container looks at; each worker "
            "needs one of its own, in a host project, too"
        ),
    )
    slice_timeout: WholeFromOne = Field(
        900,
        description=(
            "seconds after which a worker process that is still busy with one slice "
            "counts as hung and is killed; the worker refuses less than the slice, the "
            "longest node with its attempts, the grace time and 30 s together"
        ),
    )
    demo_payments_url: Annotated[str, AfterValidator(_address_of_page)] = Field(
        "", description="where the payment endpoint of the demo is"
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_blanks(cls, variables: dict[str, Any]) -> dict[str, Any]:
        stripped = {name: str(text).strip() for name, text in variables.items()}
        return {name: text for name, text in stripped.items() if text}

    @field_validator("oidc_issuer")
    @classmethod
    def _needs_allauth(cls, issuer: str) -> str:
        if issuer:
            _require_package("allauth", "django-countersign[login]")
        return issuer

    @field_validator("saml_issuer")
    @classmethod
    def _needs_saml(cls, issuer: str) -> str:
        if issuer:
            _require_package("onelogin", "django-countersign[saml]")
        return issuer

    @field_validator("local_login")
    @classmethod
    def _needs_other_login(cls, is_local: bool, checked: ValidationInfo) -> bool:
        # `checked.data` has the fields that are declared above, the issuers among them.
        issuers = (checked.data.get(f"{kind}_issuer") for kind in ("oidc", "saml"))
        if not is_local and not any(issuers):
            raise ValueError(
                "is off, and neither COUNTERSIGN_OIDC_ISSUER nor "
                "COUNTERSIGN_SAML_ISSUER names another log-in"
            )
        return is_local

    @field_validator(*IN_JSON, mode="before")
    @classmethod
    def _read_json(cls, text: str) -> Any:
        try:
            value = parse_strict(text)
        except ValueError:
            value = None
        # The value may hold secrets and is not repeated.
        if not isinstance(value, dict):
            raise ValueError("must be a JSON object that names nothing twice")
        return value

    @classmethod
    def read(cls) -> Self:
        """Return the variables as they are now. Raises `ImproperlyConfigured` naming the
        first that cannot be used, and makes the data folder.
        """
        try:
            return cls()
        except ValidationError as error:
            path, words = first_fault(error)
        name = path[0]
        entry = "".join(f"[{part!r}]" for part in path[1:])
        # Outside the handler: pydantic's error, as its context, would repeat the value
        # in a traceback.
        raise ImproperlyConfigured(f"{name}{entry} {words}")

    @property
    def is_demo(self) -> bool:
        """Return whether this is the demo: by its variable, else because `up --demo` ran
        on this data folder.

        A given secret key marks a real installation, where the remembered demo does not
        count.
        """
        if self.demo is not None:
            return self.demo
        return not self.secret_key and (self.data_dir / "demo").exists()

    @property
    def is_production(self) -> bool:
        """Return whether neither debugging nor the demo is switched on."""
        return not (self.debug or self.is_demo)

    @property
    def has_company_login(self) -> bool:
        """Return whether people sign in at a provider."""
        return bool(self.company_issuer)

    @property
    def mode(self) -> str:
        """Return the word for the mode in the console's corner."""
        if self.is_production:
            return "Production"
        return "Demo" if self.is_demo else "Development"

    def key(self) -> str:
        """Return the secret key; outside production one that is made once and kept in
        the data folder, where none is given.

        Raises `ImproperlyConfigured` if production has none.
        """
        if self.secret_key:
            return self.secret_key
        if self.is_production:
            raise ImproperlyConfigured(
                "COUNTERSIGN_SECRET_KEY is missing: set it to a long random text"
                " (for development set COUNTERSIGN_DEBUG=true instead, and one is made for you)"
            )
        return _kept_key(self.data_dir / "secret_key")

    def database(self) -> dict[str, Any]:
        """Return Django's settings of the database.

        Forms of the URL: `postgres://user:password@host:port/name`, with `?host=/folder`
        for a Unix socket and further libpq options, and `sqlite:///path`.
        """
        if not self.database_url:
            return _sqlite(self.data_dir / "countersign.sqlite3")
        parts = urlsplit(self.database_url)
        if parts.scheme == "sqlite":
            # An absolute path (sqlite:////path) stays as it is: joined to the root, it
            # replaces it.
            return _sqlite(ROOT / _name_of_database(parts))
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _name_of_database(parts),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": options.pop("host", unquote(parts.hostname or "")),
            "PORT": options.pop("port", str(parts.port or "")),
            "OPTIONS": {**self._prepared(), **self._pool(), **options},
            # Otherwise a kept connection would fail once after a restart of the
            # database.
            "CONN_HEALTH_CHECKS": True,
        }

    def _prepared(self) -> dict[str, Any]:
        """Return parameters and prepared statements on the server: half the cost of a
        superstep's commit. A pooler that hands each transaction to another connection
        cannot have them.
        """
        if not self.prepared_statements:
            return {}
        return {"server_side_binding": True, "prepare_threshold": 1}

    def _pool(self) -> dict[str, Any]:
        """Return psycopg's pool as an option of the database, where one is named. Workers
        leave it out.
        """
        if not self.database_pool:
            return {}
        return {"pool": {"min_size": 1, "max_size": self.database_pool}}

    def countersign(self) -> dict[str, Any]:
        """Return the COUNTERSIGN dictionary: only what the environment gives; the rest has
        its default in `checkpoints.conf`.
        """
        names = self.model_fields_set & set(Variables.model_fields)
        values = {name.upper(): getattr(self, name) for name in names}
        return {"ENVIRONMENT": self.mode, **values}


def load() -> Environment:
    """Return the variables for the settings. Ends the process with one sentence where one
    of them cannot be used.

    `ImproperlyConfigured` would end `python -m django` and the web servers with a
    traceback.
    """
    try:
        variables = Environment.read()
        variables.key()
    except ImproperlyConfigured as error:
        sys.exit(f"Bad settings: {error}")
    return variables


def data_dir() -> Path:
    """Return the folder for everything this installation writes, made if it is missing.
    Raises `ImproperlyConfigured`.
    """
    return Environment.read().data_dir


def enter_demo() -> None:
    """Turn the demo on, for this process and for later commands on the same data
    folder.
    """
    os.environ[variable_of("demo")] = "true"
    (data_dir() / "demo").touch()


def sign_ins_file() -> Path:
    """Return the file in which the demo keeps who can sign in."""
    return data_dir() / "sign-ins.txt"


def _name_of_database(parts: SplitResult) -> str:
    return unquote(parts.path.removeprefix("/"))


def _sqlite(path: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # Without IMMEDIATE two transactions that read and then write fail at once,
        # whatever the timeout; without FULL a power cut may lose the intent of an
        # effect that then happened.
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA"
            " cache_size=-20000;",
        },
    }


def _kept_key(path: Path) -> str:
    """Return the key in a file, which is made if it is not there."""
    if not path.exists():
        _make_key(path)
    return path.read_text().strip()


def _make_key(path: Path) -> None:
    """Make the file of a key, for its owner only, unless another process does."""
    handle, written = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(64))
        _link(written, path)
    finally:
        os.unlink(written)


def _link(written: str, path: Path) -> None:
    """Give a file its name, unless another process has done so. The file is complete by
    then, so no process reads part of a key.
    """
    try:
        os.link(written, path)
    except FileExistsError:
        return
    except OSError:
        # There are file systems without links.
        with suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(Path(written).read_text())
