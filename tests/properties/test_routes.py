"""Every address with every parameter and nonsense in it, by everybody: nothing answers
500, and a 4xx changes nothing.

The addresses are found by the resolver, what they read in the text of the program; a
parameter that this page does not know fails it. COUNTERSIGN_EXAMPLES=1000 tries
everything, fewer a share that is drawn by COUNTERSIGN_SEED.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from approvals import reviews
from approvals.api.base import Body
from approvals.models import ApprovalRequest, Receipt
from approvals.webhooks import verbs as webhooks
from checkpoints import retention
from checkpoints.models import AuditLine, PendingWrite, RetentionPolicy, Run
from checkpoints.sealing import sealed_columns
from orchestrator import runs
from tests.properties.drawing import EXAMPLES, SEED
from tests.properties.nonsense import BODIES, EDGE, LATE, SOME_ID, TEXTS, VALUES
from tests.support import claims
from tests.support.cast import People
from tests.support.table_contents import OURS, contents

ROOT = Path(sealed_columns.__file__).parents[2]
PER_EXAMPLE = 40
"""Requests for each example of COUNTERSIGN_EXAMPLES."""
LONG = 100
"""Examples from which on every address is given every parameter of any."""
QUERY = {
    "comments",
    "status",
    "before",
    "graph",
    "q",
    "since",
    "id",
    "seen",
    "as",
    "at",
    "tab",
    "e",
    "edit",
    "part",
    "folder",
    "taken",
    "page",
    "next",
    "path",
    "a",
    "b",
    "with_at",
    "how",
    "open",
    "list",
    "started",
    "who",
    "run",
    "kind",
    "from",
    "to",
    "as_is",
    "all",
    "paths",
    "_to_field",
    "by",
    "after",
    "metadata",
    "metadata.team",
    "token",
    "line",
    "unfolded",
    "gate",
}
"""What pages read from their address."""
FORM = {
    "SAMLResponse",
    "about",
    "envelope",
    "comment",
    "text",
    "until",
    "path_",
    "most_",
    "most_uses",
    "assertion",
    "credential",
    "as_is",
    "confirm",
    "paths",
    "key",
    "mode",
    "json",
    "reason",
    "task",
    "answer",
    "output",
    "accept_risk",
    "theme",
    "next",
    "write",
    "v-",
    "h-",
    "r-",
    "e-",
    "d-",
    "i.claim_id",
    "i.amount",
    "i.cause",
    "i.holder.name",
    "i.photos",
    "i.urgent",
    "i.letter.kept",
    "user",
    "username",
    "password",
    "action",
    "_selected_action",
    "select_across",
    "index",
    "post",
    "name",
    "groups",
    "seen",
    "number",
    "review",
    "by",
    "how",
    "do",
    "token",
    "line",
    "mend",
    "ops",
    "sure",
    "a-",
    "c-",
    "s-",
    "allow-",
    "act",
    "g-",
    "gr-",
    "group",
    "shortcuts",
    "base",
    "view",
    "metadata",
    "typed",
    "begins",
    "ends",
    "request",
    "to",
    "graph",
    "keep_last",
    "age_failed",
    "whole_failed",
    "checkpoint",
    "_to_field",
    "url",
    "events",
    "graphs",
    "delivery",
    "quiet_from",
    "quiet_until",
    "time_zone",
}
"""What pages and the admin read from forms."""
ADMIN = {
    "q",
    "o",
    "p",
    "all",
    "e",
    "_popup",
    "_to_field",
    "_facets",
    "_changelist_filters",
    "id__exact",
    "id__in",
    "id__gt",
    "pk",
    "term",
    "app_label",
    "model_name",
    "field_name",
    "next",
}
"""What the admin reads from its addresses, beside the filters of each model."""
READ = r'\bGET(?:\.get(?:list)?\(|\[)"([^"]+)"'


@dataclass(frozen=True)
class Route:
    """One address. `parts` are literal texts, `names` the parameters between them,
    `reads` what its view's module reads from an address.
    """

    view: str
    parts: tuple[str, ...]
    names: tuple[str, ...]
    reads: frozenset[str]

    def path(self, value: Mapping[str, str]) -> str:
        pieces = [self.parts[0]]
        for name, text in zip(self.names, self.parts[1:], strict=True):
            pieces += [sent(value[name]), text]
        return "/" + "".join(pieces)


@dataclass(frozen=True)
class Case:
    """One request."""

    route: Route
    method: str = "GET"
    place: str = ""
    value: Any = None
    body: bytes | None = None
    person: str = "superuser"
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Without nonsense."""
        return self.method == "GET" and not self.place


def sent(text: str) -> str:
    """Return a text as a part of an address."""
    return quote_from_bytes(text.encode("utf-8", "surrogatepass"), safe="")


def routes() -> list[Route]:
    """Every address of the project."""
    return [
        Route(view, *_split(pattern), _reads(call))
        for view, pattern, call in _walk(get_resolver(), "", "")
    ]


def _reads(call: Callable[..., Any]) -> frozenset[str]:
    text = inspect.getsource(sys.modules[inspect.unwrap(call).__module__])
    return frozenset(re.findall(READ, text)) | (
        {"e"} if "run_details" in text else set()
    )


def _walk(
    resolver: URLResolver, before: str, space: str
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    for entry in resolver.url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _walk(
                entry, pattern, f"{entry.namespace or entry.app_name or space}"
            )
        elif isinstance(entry, URLPattern):
            yield f"{space}:{entry.name or entry.lookup_str}", pattern, entry.callback


def _split(pattern: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    plain = re.sub(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)", r"<\1>", pattern)
    plain = (
        plain.replace("^", "")
        .replace("$", "")
        .replace("\\Z", "")
        .replace("\\.", ".")
        .replace(".*/", "nowhere/")
    )
    pieces = re.split(r"<(?:\w+:)?(\w+)>", plain)
    return tuple(pieces[::2]), tuple(pieces[1::2])


ROUTES = routes()


@pytest.fixture
def site(people: People) -> Iterator[dict[str, Any]]:
    """A paused run, a signed one, and who looks: name -> client, and parameter ->
    values that lead somewhere.
    """
    with claims.registered(claims.graph_of()):
        run = claims.paused("CLM-1", people.starter)
        signed = claims.paused("CLM-2", people.starter)
        row = PendingWrite.objects.filter(run=signed).first()
        assert row is not None
        decisions = [{"write": str(row.write), "hash": row.hash, "verdict": "approve"}]
        receipt = reviews.sign(signed.id, decisions, by=people.reviewer)
        root = User.objects.create_superuser("root")
        who = {
            "superuser": root,
            "operator": people.starter,
            "reviewer": people.reviewer,
        }
        if connection.vendor == "postgresql":
            # All requests share the transaction of the signature, which may not be idle
            # for long: on a busy machine one page can take longer.
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield {
            "cookies": {name: _cookies(user) for name, user in who.items()}
            | {"anonymous": {}},
            "known": _known(run, receipt, row.write),
            "contents": contents(),
        }


def _cookies(user: User) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    return {name: cookie.value for name, cookie in client.cookies.items()}


def _known(run: Run, receipt: Receipt, write: Any) -> dict[str, list[str]]:
    request = ApprovalRequest.objects.filter(run=run).first()
    assert request is not None
    webhook, _ = webhooks.add_webhook("https://hooks.example.org/", by=None)
    rule = retention.save_policy(RetentionPolicy(graph=run.graph, keep_last=1), by=None)
    return {
        "run": [str(run.id), run.key],
        "ref": [str(run.id), run.key],
        "name": ["page_claim"],
        "checkpoint": [str(run.head), f"{run.key}:initial"],
        "request_id": [str(request.id)],
        "receipt_id": [str(receipt.id)],
        "number": [
            str(AuditLine.objects.order_by("id").values_list("id", flat=True)[0])
        ],
        "format": ["csv"],
        "decision": [str(receipt.decisions.all()[0].id)]
        if receipt.decisions.exists()
        else [str(run.id)],
        "object_id": [str(run.id), "1"],
        "content_type_id": ["1"],
        "id": ["1"],
        "app_label": ["checkpoints"],
        "url": ["nowhere"],
        "write": [str(write)],
        "policy": [str(rule.pk)],
        "key": ["1"],
        "job": [str(retention.prune(rule, by=None).id)],
        "act": ["pause"],
        "delegation": [str(run.id)],
        "standing_policy": [str(run.id)],
        "door": ["nowhere"],
        "webhook": [str(webhook.id)],
        "delivery": [str(webhooks.send_test(webhook.id, by=None).id)],
        "fork": [
            str(
                runs.fork_many(
                    graph="page_claim", status="paused", by=run.started_by
                ).id
            )
        ],
    }


def test_every_parameter_of_every_address_is_tried() -> None:
    """What is written here as known is complete: a new address or parameter must be
    added, or this fails.
    """
    named = {name for route in ROUTES for name in route.names}
    assert named <= {*_KNOWN_NAMES}
    assert len(ROUTES) > 100
    read: set[str] = set()
    for path in (path for app in OURS for path in (ROOT / app).rglob("*.py")):
        text = path.read_text()
        read |= set(re.findall(READ, text))
        for other in re.findall(r"request\.GET\.(?!get(?:list)?\(\")([^\s]+)", text):
            assert other.startswith(
                ("get(name", "getlist(card_pages.QUERY", "getlist(name)", "dict()")
            ), (path, other)
    assert read <= QUERY
    forms: set[str] = set()
    for path in (path for app in OURS for path in (ROOT / app).rglob("*.py")):
        forms |= set(
            re.findall(r'\bPOST(?:\.get(?:list)?\(|\[)f?"([^"{]+)', path.read_text())
        )
    assert forms <= FORM


_KNOWN_NAMES = (
    "run",
    "ref",
    "name",
    "checkpoint",
    "request_id",
    "receipt_id",
    "object_id",
    "content_type_id",
    "id",
    "app_label",
    "url",
    "fork",
    "number",
    "format",
    "decision",
    "policy",
    "job",
    "key",
    "delegation",
    "standing_policy",
    "act",
    "door",
    "webhook",
    "delivery",
)


def test_nothing_answers_500_and_what_is_refused_changes_nothing(
    site: dict[str, Any],
) -> None:
    wrong = [
        fault
        for case in _drawn(list(_cases(site["known"])))
        if (fault := _tried(case, site))
    ]
    assert not wrong, "\n".join(wrong[:40])


FOUND = {
    "/admin/checkpoints/memorytrace/?at__in=": (LATE, EDGE),
    "/admin/axes/accessattempt/?ip_address__in=": ("💥", "-1"),
    "/admin/axes/accessfailurelog/?ip_address__exact=": ("💥", "-1"),
    "/admin/checkpoints/runevent/1/delete/?_to_field=": ("",),
    "/admin/checkpoints/runevent/1/change/?_to_field=": ("",),
    "/reviews/?page=": ("1" + "0" * 30, "9" * 5000, "٣"),
    "/runs/CLM-1/?at=": ("1" + "0" * 30, "9" * 5000, "٣"),
    "/runs/CLM-1/?tab=events&e=": ("1" + "0" * 30, "9" * 5000, "٣", str(2**63)),
    "/runs/?before=": (f"{EDGE}~{SOME_ID}", f"{LATE}~{SOME_ID}"),
    "/audit/?from=": (EDGE, LATE, "9" * 5000),
    "/audit/?to=": ("9999-12-31", "0001-01-01T00:00+23:59"),
    "/audit/?before=": (f"{EDGE}~1", f"{LATE}~1", f"{LATE}~{2**63}"),
    "/audit/?who=": ("\x00", "\ud800"),
    "/audit/?run=": ("\x00", "\ud800"),
    "/audit/?graph=": ("\ud800",),
    "/audit/?kind=": ("\ud800",),
    "/audit/": ("9" * 30 + "/", "9" * 5000 + "/", "٣/", "export.x"),
    "/audit/export.csv?from=": (EDGE, LATE),
    "/api/v1/audit/?by=": ("\x00", "\ud800"),
    "/api/v1/audit/?from=": (EDGE, LATE),
    "/api/v1/audit/": ("9" * 30 + "/", "9" * 5000 + "/"),
    "/runs/?q=": ("\x00", "a\x00b", "\ud800"),
    "/runs/?graph=": ("\x00",),
    "/runs/-/news/?since=01a20375-2ef5-7e6f-835d-4878671b73ec&q=": ("\x00",),
    "/runs/": ("\x00/", "a\x00b/"),
    "/admin/checkpoints/run/?q=": ("\x00", "\ud800"),
    "/admin/checkpoints/run/?graph__exact=": ("\x00",),
    "/admin/checkpoints/run/?seal__exact=": ("x",),
    "/admin/approvals/decision/?reason__in=": ("x",),
    "/admin/checkpoints/run/": ("\x00/change/",),
    "/admin/checkpoints/runevent/": (
        "9" * 30 + "/change/",
        "9" * 5000 + "/change/",
        "٣/change/",
    ),
    "/api/v1/runs/?key=": ("\x00", "\ud800"),
    "/api/v1/runs/": ("\x00/", "\ud800/"),
    "/api/v1/runs/CLM-1/events/?after=": ("1" + "0" * 30, "9" * 5000, "٣"),
    "/api/v1/checkpoints/CLM-1:at-": ("9" * 30 + "/", "9" * 9 + "/"),
    "/api/v1/runs/?since=": (EDGE, LATE),
}
"""Addresses that answered 500 once, or nearly: tried in every pass."""


def test_addresses_that_once_answered_500_are_refused_or_read(
    site: dict[str, Any],
) -> None:
    client = Client(raise_request_exception=False)
    client.cookies.load(site["cookies"]["superuser"])
    answers = {}
    for start, ends in FOUND.items():
        for end in ends:
            with transaction.atomic():
                answer = client.get(
                    start
                    + quote_from_bytes(end.encode("utf-8", "surrogatepass"), safe="/")
                )
                answers[start, end[:20]] = (answer.status_code, _why(answer))
                transaction.set_rollback(True)
    assert {what: status for what, status in answers.items() if status[0] >= 500} == {}


def _drawn(cases: list[Case]) -> list[Case]:
    """Each address as it is, then as many others as are asked for, those of the admin,
    which are many, last.
    """
    Random(SEED).shuffle(cases)
    plain = [case for case in cases if case.plain]
    own = [
        case
        for case in cases
        if not (case.plain or case.route.view.startswith("admin:"))
    ]
    rest = [
        case
        for case in cases
        if not case.plain and case.route.view.startswith("admin:")
    ]
    return [
        *plain,
        *own[: EXAMPLES * PER_EXAMPLE],
        *rest[: EXAMPLES * PER_EXAMPLE // 3],
    ]


def _cases(known: Mapping[str, list[str]]) -> Iterator[Case]:
    bodies = sorted({name for body in _bodies(Body) for name in body().fields})
    for route in ROUTES:
        good = {name: known[name][0] for name in route.names}
        who = [*(["superuser"] * 3), "operator", "reviewer", "anonymous"]
        draw = Random(f"{SEED}{route.view}")
        yield Case(route, person=draw.choice(who), arguments=good)
        for name in route.names:
            for text in TEXTS:
                yield Case(
                    route,
                    place="path",
                    person=draw.choice(who),
                    arguments=good | {name: text},
                )
        for name, text in _queries(route, bodies, draw):
            yield Case(
                route, place=name, value=text, person=draw.choice(who), arguments=good
            )
        yield from (
            Case(route, "POST", place, value, body, draw.choice(who), good)
            for place, value, body in _posts(route, bodies, draw)
        )


def _bodies(kind: type[Body]) -> Iterator[type[Body]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _bodies(subclass)


def _queries(
    route: Route, bodies: list[str], draw: Random
) -> Iterator[tuple[str, str]]:
    """Each parameter that the kind of address knows, with some nonsense each."""
    if route.view.startswith("api:"):
        names = bodies
    elif route.view.startswith("admin:"):
        names = [*ADMIN, *_filters(route)]
    else:
        names = [*(route.reads if EXAMPLES < LONG else QUERY)]
    for name in sorted(names):
        some = (
            TEXTS
            if route.view.startswith(":") or route.view == "api:runs"
            else draw.sample(TEXTS, 6)
        )
        yield from ((name, text) for text in some)


def _filters(route: Route) -> Iterator[str]:
    for model, page in admin.site._registry.items():
        if route.view.startswith(
            f"admin:{model._meta.app_label}_{model._meta.model_name}_"
        ):
            names = [*page.list_filter, *(f.name for f in model._meta.concrete_fields)]
            for name in map(str, names):
                yield from (
                    f"{name}__exact",
                    f"{name}__gte",
                    f"{name}__in",
                    f"{name}__isnull",
                )


def _posts(
    route: Route, bodies: list[str], draw: Random
) -> Iterator[tuple[str, Any, bytes | None]]:
    if route.view.startswith("api:"):
        yield from (("", None, body) for body in BODIES)
        yield from (
            (name, value, None) for name in bodies for value in draw.sample(VALUES, 6)
        )
        return
    for name in sorted(FORM):
        yield from ((name, text, None) for text in draw.sample(TEXTS, 4))


GOOD: dict[str, dict[str, Any]] = {
    "api:runs": {"graph": "page_claim", "input": {"claim_id": "C", "amount": "1"}},
    "api:rewind": {"checkpoint": "CLM-1:initial", "reason": "because"},
    "api:forks": {"graph": "page_claim", "status": "paused"},
}
"""What is posted where a body needs more than the one field that is tried."""


def _tried(case: Case, site: dict[str, Any]) -> str | None:
    """Return what is wrong with the answer, if anything. Whatever the request did is
    undone.
    """
    path = case.route.path(case.arguments)
    writes = []
    client = Client(raise_request_exception=False)
    client.cookies.load(site["cookies"][case.person])

    def watch(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.split(" ", 1)[0] in ("INSERT", "UPDATE", "DELETE"):
            writes.append(sql)
        return execute(sql, *rest)

    with transaction.atomic():
        with connection.execute_wrapper(watch):
            answer = _answer(client, case, path, site["known"])
        for _ in getattr(answer, "streaming_content", ()):
            pass
        changed = (
            writes
            and 400 <= answer.status_code < 500
            and site["contents"] != contents()
        )
        transaction.set_rollback(True)
    what = (
        f"{case.method} {path[:200]} {case.place}={str(case.value)[:60]!r}"
        f" {case.body[:60] if case.body else ''!r}"
    )
    if (
        answer.status_code >= 500 and case.route.view != ":readyz-workers"
    ):  # no worker is alive here
        return f"{answer.status_code} for {case.person}: {what}: {_why(answer)}"
    if changed:
        return f"{answer.status_code} changed something for {case.person}: {what}: {writes[:2]}"
    return None


def _why(answer: Any) -> str:
    kind, error, _ = getattr(answer, "exc_info", None) or (None, None, None)
    return f"{kind.__name__ if kind else ''} {str(error)[:200]}"


def _answer(
    client: Client, case: Case, path: str, known: Mapping[str, list[str]]
) -> Any:
    if case.method == "GET":
        query = (
            f"?{sent(case.place)}={sent(case.value)}"
            if case.place not in ("", "path")
            else ""
        )
        answer = client.generic("GET", path + query)
        # A page that makes something is read at the address with a token.
        return (
            client.get(answer.url) if "token=" in getattr(answer, "url", "") else answer
        )
    if case.route.view.startswith("api:"):
        content = case.body if case.body is not None else _as_json(case)
        return client.generic("POST", path, content, content_type="application/json")
    write = known["write"][0]
    name = case.place + write if case.place.endswith("-") else case.place
    posted = {
        "write": write,
        f"v-{write}": "edit",
        f"h-{write}": "x",
        "mode": "form",
        "answer": "yes",
        name: case.value,
    }
    form = "&".join(f"{quote(key)}={sent(text)}" for key, text in posted.items())
    return client.generic(
        "POST", path, form, content_type="application/x-www-form-urlencoded"
    )


def _as_json(case: Case) -> bytes:
    whole: dict[str, Any] = {**GOOD.get(case.route.view, {}), case.place: case.value}
    item = {"write": claims.__name__, "hash": "h", "verdict": "approve"}
    if case.place in ("write", "hash", "verdict", "value", "decisions"):
        whole = {
            "decisions": [item | {case.place: case.value}]
            if case.place != "decisions"
            else case.value
        }
    return json.dumps(whole).encode("utf-8", "surrogatepass")
