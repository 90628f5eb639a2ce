"""The types of the settings: what each takes, and the words in which it refuses the rest.
Pure.

A refusal is one sentence that names the setting and what it must be. It repeats a wrong
value only where the type is not `secret`.
"""

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from checkpoints.core.keyring import DATA_KEY, KEY_BYTES, LONGEST_KEY_ID

LONGEST_SHOWN = 200
"""The most characters of a wrong value that a refusal repeats."""

LONGEST_HOST = 180
"""The most characters of the name of a host, which is part of the name of a job."""

LONGEST_PROVIDER = 200
"""The most characters of the address of a provider, as its accounts keep it."""

LONGEST_GROUP = 150
"""The most characters of the name of a group, as Django keeps it."""

LEAST_TOKEN = 32
"""The fewest characters of a token that opens a door by itself."""


def must_be(words: str, *, secret: bool = False) -> WrapValidator:
    """Return the annotation of a type that refuses a value in these words."""

    def refuse_in_words(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            if _is_of_part(error):
                raise
        wrong = type(value).__name__ if secret else repr(value)[:LONGEST_SHOWN]
        raise ValueError(f"must be {words}, not {wrong}")

    return WrapValidator(refuse_in_words)


def _is_of_part(error: ValidationError) -> bool:
    """Return whether an entry of the value was refused, which has its own words."""
    return bool(error.errors()[0]["loc"])


def _empty_for_none(value: Any) -> Any:
    return "" if value is None else value


def _number_in_text(value: Any) -> Any:
    """Return the number in the text of a variable: "1e6" is a whole one too."""
    return float(value) if isinstance(value, str) else value


def _key_id(name: Any) -> str:
    fits = isinstance(name, str) and name.isascii() and 1 <= len(name) <= LONGEST_KEY_ID
    # Ids with this prefix belong to keys of single runs.
    if not fits or name.startswith(DATA_KEY):
        raise ValueError(
            f"must have an id of 1 to {LONGEST_KEY_ID} ASCII characters, of which the "
            "first is no @"
        )
    return str(name)


def _key(key: Any, forms: str = "base64") -> bytes:
    """Return the 32 bytes of a key that is given as bytes or as text in base64. `forms`
    names for a refusal which forms a text may have.
    """
    if isinstance(key, str):
        try:
            key = base64.b64decode(key, validate=True)
        except ValueError:
            raise ValueError(f"is not {forms}") from None
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        size = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise ValueError(f"must be {KEY_BYTES} bytes, not {size}")
    return key


def _key_of_bundles(key: Any) -> bytes:
    """Return the bytes of a key that may be hexadecimal too, as keys that people hand to
    each other often are; in base64 a text of that length would be longer than a key.
    """
    if isinstance(key, str) and re.fullmatch(r"[0-9a-fA-F]{64}", key):
        return bytes.fromhex(key)
    return _key(key, forms="base64 or hexadecimal")


def _own_key_of_bundles(key: Any) -> bytes:
    return _key_of_bundles(key) if key else b""


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("must be a date, as 2026-02-14") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _payloads_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise ValueError("must have a name of 1 to 60 letters, digits, _ and -")
    if name == "database":
        raise ValueError("must have another name: this is taken by the rows themselves")
    return name


def _payloads_entry(entry: Any) -> Mapping[str, Any]:
    """Check the form of one backend. `payloads.backends` builds it, and reports what else
    is wrong with it.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("backend"), str):
        raise ValueError("must be a dictionary with a 'backend'")
    unknown = set(entry) - {"backend", "options"}
    if unknown:
        names = ", ".join(map(repr, sorted(unknown)))
        raise ValueError(f"knows 'backend' and 'options', not {names}")
    if not isinstance(entry.get("options", {}), Mapping):
        raise ValueError("must be a dictionary in its 'options' too")
    return entry


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]*", name):
        raise ValueError("must be the name of a header, such as X-Real-IP")
    return name


def _site_address(url: str) -> str:
    if url and not re.fullmatch(r"https?://[^\s?#@]+", url):
        raise ValueError("must be an address, as https://runs.example.org")
    return url


def _hosts(hosts: Any) -> Any:
    """Return the names of hosts, which a text has between commas."""
    if isinstance(hosts, str):
        hosts = [name.strip() for name in hosts.split(",") if name.strip()]
    if not isinstance(hosts, list | tuple) or not all(map(_is_host, hosts)):
        raise ValueError("must be hosts in small letters, as hooks.example.org")
    return tuple(hosts)


def _is_host(name: Any) -> bool:
    fits = isinstance(name, str) and len(name) <= LONGEST_HOST
    return fits and re.fullmatch(r"[a-z0-9._:\[\]-]+", name) is not None


def _provider_address(url: str) -> str:
    # Codes and tokens go there, which nobody on the way may read.
    is_open = re.match(r"http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)", url)
    if url and not is_open and not re.fullmatch(r"https://[^\s?#@]+", url):
        raise ValueError(
            "must be an address of https, as https://login.example.org/realms/staff"
        )
    if len(url) > LONGEST_PROVIDER:
        raise ValueError(f"must have at most {LONGEST_PROVIDER} characters")
    return url


def _provider_name(name: str) -> str:
    if not name.isprintable() or " " in name or len(name) > LONGEST_PROVIDER:
        raise ValueError(
            f"must be a name of at most {LONGEST_PROVIDER} characters without spaces"
        )
    return name


def _sign_in_address(url: str) -> str:
    # Some providers identify their customers after a question mark.
    _provider_address(url.partition("?")[0])
    if not url.isprintable() or " " in url or "#" in url:
        raise ValueError("must be an address without spaces and without #")
    return url


def _scopes(scopes: str) -> str:
    if "openid" not in scopes.split():
        raise ValueError("must be scopes with spaces between them, openid among them")
    return scopes


def _local_groups(names: Any) -> tuple[str, ...]:
    """Return the groups of this installation that belong to a group of a directory,
    which are named by a text or by a list of texts.
    """
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list | tuple) or not listed:
        raise ValueError("must be a name, or a list of names")
    for name in listed:
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_GROUP:
            raise ValueError(
                f"must name groups, with 1 to {LONGEST_GROUP} characters each"
            )
    return tuple(listed)


def _mail_sender(sender: str) -> str:
    address = parseaddr(sender)[1]
    # A line break would begin another header.
    if sender and (not sender.isprintable() or "@" not in address):
        raise ValueError("must be an address, as Countersign <runs@example.org>")
    return sender


def _long_token(token: str) -> str:
    # A header could not carry white space.
    is_plain = token.isascii() and not re.search(r"\s", token)
    if token and (len(token) < LEAST_TOKEN or not is_plain):
        raise ValueError(
            f"must have at least {LEAST_TOKEN} characters, all ASCII, no white space"
        )
    return token


Switch = Annotated[bool, must_be("true or false")]
PositiveNumber = Annotated[
    float, Field(gt=0, allow_inf_nan=False), must_be("a number greater than 0")
]
NumberFromZero = Annotated[
    float, Field(ge=0, allow_inf_nan=False), must_be("a number that is 0 or greater")
]
WholeFromZero = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(_number_in_text),
    must_be("a whole number that is 0 or greater"),
]
WholeFromOne = Annotated[
    int,
    Field(ge=1),
    BeforeValidator(_number_in_text),
    must_be("a whole number that is 1 or greater"),
]
Text = Annotated[str, BeforeValidator(_empty_for_none), must_be("a text")]
HeaderName = Annotated[Text, AfterValidator(_header_name)]
MailSender = Annotated[Text, AfterValidator(_mail_sender)]
LongToken = Annotated[
    str,
    BeforeValidator(_empty_for_none),
    must_be("a text", secret=True),
    AfterValidator(_long_token),
]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_hosts)]
SiteAddress = Annotated[Text, AfterValidator(_site_address)]
ProviderAddress = Annotated[Text, AfterValidator(_provider_address)]
ProviderName = Annotated[Text, AfterValidator(_provider_name)]
SignInAddress = Annotated[Text, AfterValidator(_sign_in_address)]
Scopes = Annotated[Text, AfterValidator(_scopes)]
SecretText = Annotated[
    str, BeforeValidator(_empty_for_none), must_be("a text", secret=True)
]
GroupsOfDirectory = Annotated[
    Mapping[str, Annotated[tuple[str, ...], BeforeValidator(_local_groups)]],
    must_be("a dictionary of names of groups by the group of the directory"),
]
KeyId = Annotated[str, BeforeValidator(_key_id)]
Key = Annotated[bytes, BeforeValidator(_key)]
KeyOfBundles = Annotated[bytes, BeforeValidator(_key_of_bundles)]
OwnKeyOfBundles = Annotated[bytes, BeforeValidator(_own_key_of_bundles)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Secrets = Annotated[
    Mapping[str, Annotated[str, must_be("a text", secret=True)]],
    must_be("a dictionary of texts by name", secret=True),
]
Keys = Annotated[
    Mapping[KeyId, Key], must_be("a dictionary of keys by id", secret=True)
]
KeysOfOthers = Annotated[
    Mapping[KeyId, KeyOfBundles], must_be("a dictionary of keys by name", secret=True)
]
Moments = Annotated[
    Mapping[str, Moment], must_be("a dictionary of dates by the id of a key")
]
PayloadBackends = Annotated[
    Mapping[
        Annotated[str, BeforeValidator(_payloads_name)],
        Annotated[Mapping[str, Any], BeforeValidator(_payloads_entry)],
    ],
    must_be("a dictionary of payload backends by name", secret=True),
]


def first_fault(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Return the path of the first wrong setting, and the words of its refusal. The
    path is empty if a check of several settings refused them.
    """
    # The input is a secret at times, and the words are all that a refusal says.
    fault = error.errors(include_url=False, include_input=False)[0]
    # pydantic adds this word to the path where a key, and not its value, is wrong.
    path = tuple(str(part) for part in fault["loc"] if part != "[key]")
    words = str(fault.get("ctx", {}).get("error", fault["msg"]))
    return path, words
