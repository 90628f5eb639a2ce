"""Tags and filters of the console's templates. They format what they are given; only `shell` makes queries."""

import json
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from approvals import inbox, permissions
from approvals.views.inbox import name_of_node
from checkpoints.conf import conf
from checkpoints.core.status import STOPPED
from checkpoints.models import ErasureRecord
from checkpoints.queue import workers
from orchestrator.display import labels, run_names, tape
from orchestrator.display.shortcuts import shortcuts_of
from orchestrator.runs.labels import display_error, progress_of

register = template.Library()

THEME_COOKIE = "countersign_theme"
THEMES = ("auto", "light", "dark")
SHORTCUTS_COOKIE = "countersign_shortcuts"
SHORTCUTS_OFF = "off"
LONGEST_REASON = 120
"""Characters of why a run stopped, in lists."""


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """An icon of the sprite, hidden from assistive technology: its meaning always stands in text too."""
    return format_html('<svg class="i {}" aria-hidden="true"><use href="{}#{}"/></svg>', classes, _sprite(), name)


@register.simple_tag
def mark(effect: str, *, quiet: bool = False) -> SafeString:
    """The mark of an effect class, with its name for screen readers unless the name stands beside it (`quiet`)."""
    image = format_html('<svg class="fx" aria-hidden="true"><use href="{}#fx-{}"/></svg>', _sprite(), effect)
    if quiet:
        return image
    return format_html('{}<span class="sr">{}: </span>', image, effect.capitalize())


@register.simple_tag
def art(name: str, classes: str = "art") -> SafeString:
    """A drawing of the sprite."""
    return format_html('<svg class="{}" aria-hidden="true"><use href="{}#{}"/></svg>', classes, _sprite(), name)


def _sprite() -> str:
    return static("countersign/img/sprite.svg")


@register.simple_tag(takes_context=True)
def shell(context: template.Context) -> dict[str, Any]:
    """What every page shows: the person, what waits for him, whether a worker is there, environment and theme."""
    request = context.get("request")
    user = getattr(request, "user", None)
    cookies = request.COOKIES if request is not None else {}
    match = getattr(request, "resolver_match", None)
    chosen = cookies.get(THEME_COOKIE)
    facts: dict[str, Any] = {
        "theme": chosen if chosen in THEMES else "auto",
        "shortcuts": cookies.get(SHORTCUTS_COOKIE) != SHORTCUTS_OFF,
        "keys": shortcuts_of(match.url_name if match is not None else ""),
        "environment": conf().environment,
        "path": request.get_full_path() if request is not None else "/",
        "user": None,
    }
    if user is not None and user.is_authenticated:
        count = inbox.waiting_for(user)[: inbox.MANY + 1].count()
        name = user.get_full_name() or user.get_username()
        facts |= {"user": user, "name": name, "initials": initials(name), "role": permissions.has_role(user)}
        facts |= {"waiting": min(count, inbox.MANY), "more": count > inbox.MANY}
        facts["silence"] = workers.silence()
    return facts


@register.filter
def initials(name: str) -> str:
    """Two letters for the round badge."""
    words = [word for word in name.replace(".", " ").replace("_", " ").split() if word]
    letters = words[0][0] + words[-1][0] if len(words) > 1 else name[:2]
    return letters.upper()


@register.filter
def look(status: str) -> labels.Look:
    """How a status appears."""
    return labels.STATUS[status]  # type: ignore[index]


@register.filter
def run_look(run: Any) -> labels.Look:
    """How a run appears: by its status, or by what a paused one waits for where its `standing` was read."""
    kind = getattr(getattr(run, "standing", None), "kind", "")
    return labels.STANDING[kind] if kind else labels.STATUS[run.status]


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
    """Return the sentence that names a kind of job; the kind itself where a project added its own."""
    return labels.JOBS.get(kind, kind.replace("_", " ").capitalize())


@register.filter
def effect_sentence(effect: str) -> str:
    return labels.EFFECTS.get(effect, "")


@register.filter
def tape_columns(run: Any) -> list[tape.Column]:
    return tape.tape_columns(run.tape, run.status)


@register.filter
def moment(at: datetime | None) -> SafeString | str:
    """A time of day; with its day where that is not today. The exact time on hover and for machines."""
    if at is None:
        return ""
    return _time(timezone.localtime(at), moment_text(at))


def moment_text(at: datetime) -> str:
    """A time of day in words; with its day where that is not today."""
    local = timezone.localtime(at)
    days = (timezone.localdate() - local.date()).days
    clock = date_format(local, "H:i")
    return clock if days == 0 else f"yesterday {clock}" if days == 1 else f"{date_format(local, 'j M')} {clock}"


@register.filter
def clock(at: datetime | None) -> SafeString | str:
    """A time of day with seconds."""
    if at is None:
        return ""
    local = timezone.localtime(at)
    return _time(local, date_format(local, "H:i:s"))


def _time(local: datetime, shown: str) -> SafeString:
    exact = date_format(local, "j F Y, H:i:s")
    return format_html('<time datetime="{}" title="{}">{}</time>', local.isoformat(), exact, shown)


def _ticking(at: datetime, shown: str, kind: str) -> SafeString:
    """A span up to or from a time, which static/js/ticks.js keeps right. `kind`: since, left or lasted."""
    local = timezone.localtime(at)
    exact = date_format(local, "j F Y, H:i:s")
    markup = '<time datetime="{}" title="{}" data-tick="{}">{}</time>'
    return format_html(markup, local.isoformat(), exact, kind, shown)


@register.filter
def lasted(run: Any) -> SafeString | str:
    """How long a run has taken, h:mm:ss; up to now where it has not ended, and ticking unless it stands still."""
    if run.started_at is None:
        return ""
    seconds = max(0, int(((run.ended_at or timezone.now()) - run.started_at).total_seconds()))
    shown = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return shown if run.ended_at or run.status in STOPPED else _ticking(run.started_at, shown, "lasted")


@register.filter
def since(at: datetime) -> SafeString:
    """How long ago, in words that tick; the exact time on hover and for machines."""
    return _ticking(at, spell(timezone.now() - at), "since")


def spell(span: timedelta) -> str:
    """A span in words, as exact as a reader needs."""
    minutes = max(0, int(span.total_seconds())) // 60
    if minutes < 1:
        return f"{max(0, int(span.total_seconds()))} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes // 1440} days" if minutes >= 2880 else "1 day"


register.filter("span", spell)


@register.filter
def left(deadline: datetime) -> SafeString:
    """The time left, in words that tick; the exact time on hover and for machines."""
    return _ticking(deadline, spell(deadline - timezone.now()), "left")


@register.filter
def urgency(deadline: datetime | None) -> str:
    """hot under half an hour, warm under two hours."""
    minutes = (deadline - timezone.now()).total_seconds() / 60 if deadline else 1e9
    return "hot" if minutes < 30 else "warm" if minutes < 120 else ""


@register.filter
def short(hash_: Any) -> str:
    """The middle of a hash or id left out."""
    text = str(hash_)
    return text if len(text) <= 10 else f"{text[:4]}…{text[-4:]}"


@register.filter
def size(count: int | None) -> str:
    """Bytes in words."""
    number = float(count or 0)
    for unit in ("B", "KB", "MB"):
        if number < 1024 or unit == "MB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return ""


@register.filter
def pretty(value: Any) -> str:
    """A value as indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


@register.filter
def breakable(name: str) -> SafeString:
    """A node's name that may break after each underscore."""
    parts = [format_html("{}", part) for part in name.split("_")]
    return mark_safe("_<wbr>".join(parts))  # noqa: S308 (each part is escaped above)


@register.filter
def person(user: Any) -> str:
    """A person's name as everywhere; the system where there is none."""
    if user is None:
        return "the system"
    name: str = user.get_full_name() or user.get_username()
    return name


@register.filter
def sentence(event_type: str) -> str:
    """The words of an event type."""
    return labels.EVENTS.get(event_type, event_type.replace("_", " "))


_INPUTS = {"date": "date", "datetime": "datetime-local", "time": "time", "email": "email", "url": "url"}


@register.filter
def input_type(kind: str) -> str:
    """The type of the input of a control."""
    return _INPUTS.get(kind, "text")


@register.filter
def field_text(value: Any, kind: str) -> str:
    """A value as its input wants it: local date and time have no zone."""
    text = str(value)
    return text[:19] if kind == "datetime" else text


@register.filter
def area_rows(value: Any) -> int:
    """How high an area should be for its text."""
    text = str(value or "")
    return min(24, max(3, text.count("\n") + len(text) // 90 + 2))


@register.inclusion_tag("orchestrator/_erased.html")
def erased_note(run: Any) -> dict[str, Any]:
    """What was erased of a run, by whom and when; nothing for other runs. One query where something was."""
    return {"records": ErasureRecord.objects.filter(run=run.id).select_related("by") if run and run.erasure else ()}


@register.simple_tag
def next_step(run: Any) -> str:
    """The template of the one next step a status offers; empty where there is none."""
    return _STEPS.get(run.status, "")


_STEPS = {
    "paused": "orchestrator/_step_review.html",
    "failed": "orchestrator/_step_resume.html",
    "incompatible": "orchestrator/_step_resume.html",
    "unknown": "orchestrator/_step_settle.html",
}


@register.filter
def thousands(number: int) -> str:
    """A count with separators."""
    return f"{number:,}"


@register.filter
def checkpoint_count(run: Any) -> str:
    """How many checkpoints a run has, counted by the number of its head."""
    return f"{run.head_seq + 1:,}" if run.started_at else "0"


@register.filter
def reason(run: Any) -> str:
    """The second line under a run's node in lists: why it is where it is."""
    if run.error_code and run.status in ("failed", "unknown", "incompatible", "tampered"):
        error = display_error(run) or {}
        said = " ".join(str(error.get("message") or "").split())
        kind = error.get("type") if run.error_code == "node_failed" else ""
        words = f"{kind}: {said}" if kind and said else said or str(run.error_code).replace("_", " ")
        return words if len(words) <= LONGEST_REASON else f"{words[:LONGEST_REASON]}…"
    done = (progress_of(run) if run.status == "running" else None) or {}
    if done.get("total"):
        return f"{done.get('done', 0):,} of {done['total']:,} {done.get('note', '')}".strip()
    return _standing_in_words(run)


def _standing_in_words(run: Any) -> str:
    standing = getattr(run, "standing", None)
    if standing is None:
        return "waits for people" if run.status == "paused" else ""
    if standing.kind == "needs_yes":
        return "did this before, waits for a yes"
    return str(standing.asks or standing.origin)


@register.filter
def node_names(text: str) -> str:
    """Names of nodes with commas between them, as pages call them."""
    return ", ".join(name_of_node(name) for name in text.split(", "))


@register.filter
def words(text: str) -> list[str]:
    """The words of a text, for loops."""
    return text.split()


@register.filter
def time_only(at: datetime) -> SafeString:
    """Hours and minutes, the exact time on hover."""
    local = timezone.localtime(at)
    return _time(local, date_format(local, "H:i"))
