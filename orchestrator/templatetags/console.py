"""Tags and filters of the console's templates. They format values; only `shell` and
`erased_note` make queries.
"""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from approvals import inbox, permissions
from approvals.views.inbox import name_of_node
from approvals.views.people.fresh_login import fresh_until, has_password, way_to_log_in
from checkpoints.conf import conf
from checkpoints.core.status import STOPPED
from checkpoints.db import counts
from checkpoints.models import ErasureRecord
from checkpoints.threads import is_thread
from orchestrator.display import labels, run_names, tape
from orchestrator.display.shortcuts import shortcuts_of
from orchestrator.run_access.labels import display_error, progress_of

register = template.Library()

THEME_COOKIE = "countersign_theme"
THEMES = ("auto", "light", "dark")
SHORTCUTS_COOKIE = "countersign_shortcuts"
SHORTCUTS_OFF = "off"
LONGEST_REASON = 120
"""The most characters of a run's reason for stopping that lists show."""
MINUTES_OF_HOUR = 60
MINUTES_OF_DAY = 24 * 60
FEWEST_ROWS = 3
MOST_ROWS = 24
"""The most rows of an area for a longer text; it then scrolls."""
CHARACTERS_OF_LINE = 90
"""The number of characters after which a line of an area breaks, about."""
HOT_MINUTES = 30
"""Minutes before a deadline from which it is shown as pressing."""
WARM_MINUTES = 120


@register.simple_tag(takes_context=True)
def own_proof(context: Any) -> dict[str, Any]:
    """Return how the signed-in person shows who they are before an act: by a `password`,
    or by a log-in that is fresh `until` a time, to which `way` leads.
    """
    request: HttpRequest = context["request"]
    return {
        "password": has_password(request),
        "until": fresh_until(request),
        "way": way_to_log_in(request),
    }


@register.simple_tag(takes_context=True)
def company_login(context: Any) -> dict[str, Any]:
    """Return the name of the provider at which people sign in, the address that leads
    there and back to what they opened, and whether the form for a password is hidden;
    empty where there is no provider.
    """
    current = conf()
    if not current.company_issuer:
        return {}
    try:
        address = reverse("company_login")
    except NoReverseMatch:
        return {}
    return {
        "name": current.company_name,
        "url": f"{address}?{urlencode({'next': context.get('next') or ''})}",
        "form_hidden": not (current.local_login or context.get("is_emergency")),
    }


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """Return an icon of the sprite, hidden from assistive technology: its meaning
    always stands in text too.
    """
    return format_html(
        '<svg class="i {}" aria-hidden="true"><use href="{}#{}"/></svg>',
        classes,
        _sprite(),
        name,
    )


@register.simple_tag
def mark(effect: str, *, quiet: bool = False) -> SafeString:
    """Return the mark of an effect class, with its name for screen readers unless the
    name stands beside it (`quiet`).
    """
    image = format_html(
        '<svg class="fx" aria-hidden="true"><use href="{}#fx-{}"/></svg>',
        _sprite(),
        effect,
    )
    if quiet:
        return image
    return format_html('{}<span class="sr">{}: </span>', image, effect.capitalize())


@register.simple_tag
def art(name: str, classes: str = "art") -> SafeString:
    """Return a drawing of the sprite."""
    return format_html(
        '<svg class="{}" aria-hidden="true"><use href="{}#{}"/></svg>',
        classes,
        _sprite(),
        name,
    )


def _sprite() -> str:
    return static("countersign/img/sprite.svg")


@register.simple_tag(takes_context=True)
def shell(context: template.Context) -> dict[str, Any]:
    """Return the frame of every page: the person, the number of waiting reviews,
    whether a worker lives, environment and theme.
    """
    request = context.get("request")
    facts = _facts_of_browser(request)
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        facts |= _facts_of_person(user, context.get("bar"))
    return facts


def _facts_of_browser(request: HttpRequest | None) -> dict[str, Any]:
    """Return the part of the frame that needs no query. An error page may have no
    request.
    """
    cookies: dict[str, str] = {}
    path = "/"
    if request is not None:
        cookies = request.COOKIES
        path = request.get_full_path()
    # A cookie may hold anything.
    theme = cookies.get(THEME_COOKIE)
    if theme not in THEMES:
        theme = "auto"
    page = ""
    match = getattr(request, "resolver_match", None)
    if match is not None:
        page = match.url_name
    return {
        "theme": theme,
        "shortcuts": cookies.get(SHORTCUTS_COOKIE) != SHORTCUTS_OFF,
        "keys": shortcuts_of(page),
        "environment": conf().environment,
        "path": path,
        "user": None,
    }


def _facts_of_person(user: Any, bar: inbox.BarFacts | None) -> dict[str, Any]:
    """Return the part of the frame that is for a signed-in person. `bar` is what the
    page has read of it, so that both show the same number.
    """
    if bar is None:
        bar = inbox.bar_facts(user)
    name = user.get_full_name() or user.get_username()
    return {
        "user": user,
        "name": name,
        "initials": initials(name),
        "role": permissions.has_role(user),
        "waiting": min(bar.waiting, inbox.MANY),
        "more": bar.waiting > inbox.MANY,
        "silence": bar.silence,
    }


@register.filter
def initials(name: str) -> str:
    """Return two letters for the round badge."""
    words = name.replace(".", " ").replace("_", " ").split()
    # The first two letters of a single word, or the first letters of the first and the
    # last word.
    letters = name[:2]
    if len(words) > 1:
        letters = words[0][0] + words[-1][0]
    return letters.upper()


@register.filter
def look(status: str) -> labels.Look:
    """Return how a status appears."""
    return labels.STATUS[status]  # type: ignore[index]


@register.filter
def run_look(run: Any) -> labels.Look:
    """Return how a run appears: by its status, or, for a paused one whose `standing`
    was read, by what it waits for.
    """
    # Only pages that show paused runs read their standing, which costs queries.
    kind = getattr(getattr(run, "standing", None), "kind", "")
    if kind:
        return labels.STANDING[kind]
    return labels.STATUS[run.status]


@register.filter
def run_name(run: Any) -> str:
    """Return label and key of a run as one line of text, for titles and attributes."""
    name: str = run_names.run_name(run)
    return name


@register.filter
def says_key(run: Any) -> bool:
    """Return whether a run's label contains its key."""
    return run_names.says_key(run)


@register.filter
def job_words(kind: str) -> str:
    """Return the words that name a kind of job; for a project's own kind its name."""
    return labels.JOBS.get(kind, kind.replace("_", " ").capitalize())


@register.filter
def effect_sentence(effect: str) -> str:
    return labels.EFFECTS.get(effect, "")


@register.filter
def tape_columns(run: Any) -> list[tape.TapeColumn]:
    return tape.tape_columns(run.tape, run.status)


@register.filter
def moment(at: datetime | None) -> SafeString | str:
    """Return a time of day, with its date unless that is today. The exact time on hover
    and for machines.
    """
    # Many moments of a run are still to come.
    if at is None:
        return ""
    return _time(timezone.localtime(at), moment_text(at))


def moment_text(at: datetime) -> str:
    """Return a time of day in words, with its date unless that is today."""
    local = timezone.localtime(at)
    clock = date_format(local, "H:i")
    days = (timezone.localdate() - local.date()).days
    if days == 0:
        return clock
    if days == 1:
        return f"yesterday {clock}"
    day = date_format(local, "j M")
    return f"{day} {clock}"


@register.filter
def clock(at: datetime | None) -> SafeString | str:
    """Return a time of day with seconds."""
    if at is None:
        return ""
    local = timezone.localtime(at)
    return _time(local, date_format(local, "H:i:s"))


def _time(local: datetime, shown: str) -> SafeString:
    exact = date_format(local, "j F Y, H:i:s")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', local.isoformat(), exact, shown
    )


def _ticking(at: datetime, shown: str, kind: str) -> SafeString:
    """Return a span up to or from a time, which static/js/ticks.js keeps right. `kind`:
    since, left or lasted.
    """
    local = timezone.localtime(at)
    exact = date_format(local, "j F Y, H:i:s")
    markup = '<time datetime="{}" title="{}" data-tick="{}">{}</time>'
    return format_html(markup, local.isoformat(), exact, kind, shown)


@register.filter
def lasted(run: Any) -> SafeString | str:
    """Return how long a run has taken, h:mm:ss; up to now if it has not ended, and
    ticking unless it stands still.
    """
    if run.started_at is None:
        return ""
    # The clocks of two hosts may differ, so a span may seem to be negative.
    until = run.ended_at or timezone.now()
    span = until - run.started_at
    seconds = max(0, int(span.total_seconds()))
    shown = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if run.ended_at or run.status in STOPPED:
        return shown
    return _ticking(run.started_at, shown, "lasted")


@register.filter
def since(at: datetime) -> SafeString:
    """Return how long ago, in words that tick; the exact time on hover and for
    machines.
    """
    return _ticking(at, spell(timezone.now() - at), "since")


def spell(span: timedelta) -> str:
    """Return a span in words, as exact as a reader needs."""
    seconds = max(0, int(span.total_seconds()))
    minutes = seconds // 60
    if minutes < 1:
        return f"{seconds} s"
    if minutes < MINUTES_OF_HOUR:
        return f"{minutes} min"
    if minutes < MINUTES_OF_DAY:
        return f"{minutes // MINUTES_OF_HOUR} h {minutes % MINUTES_OF_HOUR:02} min"
    days = minutes // MINUTES_OF_DAY
    return "1 day" if days == 1 else f"{days} days"


register.filter("span", spell)


@register.filter("left")
def time_left(deadline: datetime) -> SafeString:
    """Return the time left, in words that tick; the exact time on hover and for
    machines.
    """
    return _ticking(deadline, spell(deadline - timezone.now()), "left")


@register.filter
def urgency(deadline: datetime | None) -> str:
    """Return "hot" under half an hour, "warm" under two hours, else nothing."""
    if deadline is None:
        return ""
    minutes = (deadline - timezone.now()).total_seconds() / 60
    if minutes < HOT_MINUTES:
        return "hot"
    if minutes < WARM_MINUTES:
        return "warm"
    return ""


@register.filter
def short(hash_: Any) -> str:
    """Return a hash or id with its middle left out."""
    text = str(hash_)
    if len(text) <= 10:
        return text
    return f"{text[:4]}…{text[-4:]}"


@register.filter
def size(count: int | None) -> str:
    """Return a number of bytes in words."""
    number = count or 0
    if number < 1024:
        return f"{number:.0f} B"
    kilobytes = number / 1024
    if kilobytes < 1024:
        return f"{kilobytes:,.1f} KB"
    return f"{kilobytes / 1024:,.1f} MB"


@register.filter
def pretty(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


@register.filter
def breakable(name: str) -> SafeString:
    """Return a node's name that may break after each underscore."""
    parts = [format_html("{}", part) for part in name.split("_")]
    return mark_safe("_<wbr>".join(parts))  # noqa: S308 (each part is escaped above)


@register.filter
def person(user: Any) -> str:
    """Return a person's name as all pages show it; without a person the system."""
    if user is None:
        return "the system"
    name: str = user.get_full_name() or user.get_username()
    return name


@register.filter
def sentence(event_type: str) -> str:
    """Return the words of an event type."""
    return labels.EVENTS.get(event_type, event_type.replace("_", " "))


_INPUTS = {
    "date": "date",
    "datetime": "datetime-local",
    "time": "time",
    "email": "email",
    "url": "url",
}


@register.filter
def input_type(kind: str) -> str:
    """Return the HTML input type for this kind of control."""
    return _INPUTS.get(kind, "text")


@register.filter
def field_text(value: Any, kind: str) -> str:
    """Return a value as its input takes it: local date and time have no zone."""
    text = str(value)
    if kind == "datetime":
        return text[: len("2026-11-22T09:00:00")]
    return text


@register.filter
def area_rows(value: Any) -> int:
    """Return how high an area should be for its text."""
    text = str(value or "")
    lines = text.count("\n") + len(text) // CHARACTERS_OF_LINE
    return min(MOST_ROWS, max(FEWEST_ROWS, lines + 2))


@register.inclusion_tag("orchestrator/_erased.html")
def erased_note(run: Any) -> dict[str, Any]:
    """Return the erasures of a run, with their times and people; nothing for other
    runs. One query if there are any.
    """
    records: Iterable[ErasureRecord] = ()
    if run and run.erasure:
        records = ErasureRecord.objects.filter(run=run.id).select_related("by")
    return {"records": records}


@register.filter
def thousands(number: int) -> str:
    """Return a count with separators."""
    return f"{number:,}"


@register.filter
def counted(number: int) -> str:
    """Return a number of rows that were counted up to a limit, such as "1,000+"."""
    return counts.in_words(number)


@register.filter
def checkpoint_count(run: Any) -> str:
    """Return how many checkpoints a run has, counted by the number of its head."""
    if not run.started_at and not is_thread(run):
        return "0"
    return f"{run.head_seq + 1:,}"


@register.filter
def reason(run: Any) -> str:
    """Return the second line under a run's node in lists: why it is where it is."""
    if run.error_code and run.status in STOPPED_BY_ERROR:
        text = _error_in_words(run)
        if len(text) > LONGEST_REASON:
            return f"{text[:LONGEST_REASON]}…"
        return text
    if run.status == "running":
        progress = progress_of(run) or {}
        if progress.get("total"):
            count = f"{progress.get('done', 0):,} of {progress['total']:,}"
            return f"{count} {progress.get('note', '')}".strip()
    return _standing_in_words(run)


STOPPED_BY_ERROR = ("failed", "unknown", "incompatible", "tampered")


def _error_in_words(run: Any) -> str:
    """Return the error's message on one line, or its code if it has none."""
    error = display_error(run) or {}
    # The lists show one line, and messages of exceptions may have many.
    message = str(error.get("message") or "")
    message = " ".join(message.split())
    if not message:
        return str(run.error_code).replace("_", " ")
    # Only for an exception of a node the type says more than the code.
    kind = error.get("type")
    if run.error_code == "node_failed" and kind:
        return f"{kind}: {message}"
    return message


def _standing_in_words(run: Any) -> str:
    """Return what a run waits for, or where it came from, as far as it was read."""
    standing = getattr(run, "standing", None)
    # Not every list reads it.
    if standing is None:
        return "waits for people" if run.status == "paused" else ""
    if standing.kind == "needs_yes":
        return "did this before, waits for a yes"
    return str(standing.asks or standing.origin)


@register.filter
def node_names(text: str) -> str:
    """Return names of nodes as pages call them, with commas between them."""
    return ", ".join(name_of_node(name) for name in text.split(", "))


@register.filter
def words(text: str) -> list[str]:
    """Return the words of a text, for loops."""
    return text.split()


@register.filter
def time_only(at: datetime) -> SafeString:
    """Return hours and minutes, the exact time on hover."""
    local = timezone.localtime(at)
    return _time(local, date_format(local, "H:i"))
