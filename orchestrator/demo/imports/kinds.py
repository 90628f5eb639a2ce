"""The kinds of cells: the check whether a text is right as it stands, and the proposal
of what was probably meant if not.

Checking and proposing are pure. A proposal passes the check itself; if none would,
there is none.
"""

import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Literal

from orchestrator.demo.imports.countries import CODES, NAMES

Kind = Literal["text", "email", "number", "date", "country"]
LONGEST = 1000
"""The most characters that a checked cell may have."""

_EMAIL = re.compile(
    r"[^\s@,;:<>()\[\]\"\\]+@(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,63}"
)
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,9})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# Day first where both readings are possible: the reviewer sees before and after.
_DATE_FORMATS = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%Y%m%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%d-%m-%Y",
    "%m/%d/%Y",
    "%m-%d-%Y",
    "%d.%m.%y",
    "%d/%m/%y",
    "%d %B %Y",
    "%d %b %Y",
    "%d. %B %Y",
    "%B %d, %Y",
    "%b %d, %Y",
    "%d-%b-%Y",
)


def problem(kind: Kind, text: str) -> str:
    """Return what is wrong with a text that is not empty; empty if nothing is."""
    if text != text.strip():
        return "blanks around it"
    if len(text) > LONGEST:
        return f"more than {LONGEST:,} characters"
    return "" if _RIGHT[kind](text) else _WRONG[kind]


def proposal(kind: Kind, text: str) -> str | None:
    """Return what was probably meant; None if that is not clear."""
    # A text that is far too long is not worth the work of the patterns.
    meant = _MEANT[kind](" ".join(text[: 2 * LONGEST].split()))
    if not meant or problem(kind, meant):
        return None
    return meant


def _is_email(text: str) -> bool:
    dots_apart = not text.startswith(".") and ".." not in text and ".@" not in text
    return dots_apart and len(text) <= 254 and bool(_EMAIL.fullmatch(text))


def _is_date(text: str) -> bool:
    # `\d` also fits digits of other scripts.
    if not (_DATE.fullmatch(text) and text.isascii()):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _meant_email(text: str) -> str:
    inner = re.search(r"<([^<>]+)>", text)
    text = inner.group(1) if inner else text.strip("<>\"' ")
    text = re.sub(r"(?i)^mailto:", "", text)
    text = re.sub(r"(?i)\s*(?:\(at\)|\[at\]|\sat\s)\s*", "@", text)
    text = re.sub(r"(?i)\s*(?:\(dot\)|\[dot\])\s*", ".", text)
    text = re.sub(r"@+", "@", text.replace(" ", ""))
    name, at, domain = text.partition("@")
    domain = re.sub(r"[.,]+", ".", domain).strip(".").lower()
    return name.strip(".") + at + domain


def _meant_number(text: str) -> str:
    sign = "-" if text.startswith(("-", "(", "−")) or text.endswith("-") else ""
    body = re.sub(
        r"(?i)^(?:eur|usd|gbp|chf)\b|\b(?:eur|usd|gbp|chf)$|[€$£\s'’_()+−-]", "", text
    )
    if not re.fullmatch(r"[\d.,]*\d[\d.,]*", body):
        return ""
    whole, decimals = _split(body)
    if re.fullmatch(r"\d*|\d{1,3}(,\d{3})+|\d{1,3}(\.\d{3})+", whole) is None:
        return ""
    digits = re.sub(r"[.,]", "", whole) or "0"
    return sign + digits + (f".{decimals}" if decimals else "")


def _split(body: str) -> tuple[str, str]:
    """Return the digits before and after the decimal mark, which is the last mark
    unless it only separates thousands.
    """
    last = max(body.rfind("."), body.rfind(","))
    if last < 0 or re.fullmatch(r"\d{1,3}(,\d{3})+|\d{1,3}(\.\d{3}){2,}", body):
        return body, ""
    return body[:last], body[last + 1 :]


def _meant_date(text: str) -> str:
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", text)
    text = re.sub(r"^(\d{4}-\d{1,2}-\d{1,2})[T ].*$", r"\1", text)
    for form in _DATE_FORMATS:
        try:
            return datetime.strptime(text, form).date().isoformat()
        except ValueError:
            continue
    return ""


_RIGHT: dict[Kind, Callable[[str], bool]] = {
    "text": lambda text: True,
    "email": _is_email,
    "number": lambda text: bool(_NUMBER.fullmatch(text)) and text.isascii(),
    "date": _is_date,
    "country": CODES.__contains__,
}
_WRONG: dict[Kind, str] = {
    "text": "",
    "email": "no e-mail address",
    "number": "no number (digits, a point before decimals)",
    "date": "no date (YYYY-MM-DD)",
    "country": "no country code (two capital letters)",
}
_MEANT: dict[Kind, Callable[[str], str]] = {
    "text": str,
    "email": _meant_email,
    "number": _meant_number,
    "date": _meant_date,
    "country": lambda text: (
        text.upper() if text.upper() in CODES else NAMES.get(text.casefold(), "")
    ),
}
