"""What is said twice at a door that changes something is refused by name, and nothing
is changed.
"""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client as Browser
from django.urls import URLPattern, URLResolver, get_resolver, reverse

import checkpoints
from approvals.models import Decision
from checkpoints.models import PendingWrite, Run, Upload
from orchestrator import tokens
from orchestrator.models import ApiToken, IdempotencyRecord
from tests.support import claims
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.page_people import claim_graph, run

__all__ = ["claim_graph", "run"]

ROOT = Path(checkpoints.__file__).parents[1]
OWN_WORDS = {
    *(
        "checkpoints/audit/chain.py",
        "checkpoints/bundle/verifier.py",
        "checkpoints/core/strict_json.py",
        "checkpoints/db/together.py",
    ),
    *(
        "checkpoints/queue/job_seals.py",
        "checkpoints/retention/stretches.py",
        "checkpoints/versions.py",
        "orchestrator/api/idempotency.py",
        "orchestrator/bridges/openai_agents.py",
        "orchestrator/engine/versions/pending_parts.py",
    ),
}
"""The one reader; who reads back what he wrote himself, or what the library wrote that
calls him; and the verifier of bundles, which runs without the rest.
"""
JSON_DOORS = (
    "runs/",
    "runs/CLM-1/cancel/",
    "runs/CLM-1/resume/",
    "runs/CLM-1/settle/",
    "runs/CLM-1/signatures/",
    "runs/CLM-1/rewind/",
    "checkpoints/CLM-1:initial/fork/",
    "checkpoints/CLM-1:initial/plan/",
    "checkpoints/CLM-1:initial/replay/",
    "forks/",
)
FORMS = {
    ":home.theme": "/account/theme/",
    ":account.shortcuts": "/account/shortcuts/",
    ":mail_choice": "/account/mail/",
    ":passkey_register": "/account/passkeys/",
    ":passkey_options": "/account/passkeys/options/",
    ":claim": "/reviews/CLM-1/claim/",
    ":comment": "/reviews/CLM-1/comment/",
    ":notices_read": "/notices/read/",
    ":notices_kinds": "/notices/kinds/",
    ":reopen": "/reviews/CLM-1/reopen/01a20375-2ef5-7e6f-835d-4878671b73ec/",
    ":saved_filters": "/reviews/-/filters/",
    ":delegate": "/account/delegations/",
    ":delegation_revoke": (
        "/account/delegations/01a20375-2ef5-7e6f-835d-4878671b73ec/revoke/"
    ),
    ":standing_policy_new": (
        "/account/policies/for/01a20375-2ef5-7e6f-835d-4878671b73ec/"
    ),
    ":standing_policy_revoke": (
        "/account/policies/01a20375-2ef5-7e6f-835d-4878671b73ec/revoke/"
    ),
    ":challenge": "/reviews/CLM-1/passkey/",
    ":login": "/login/",
    ":local_login": "/login/local/",
    ":resume": "/runs/CLM-1/resume/",
    ":cancel": "/runs/CLM-1/cancel/",
    ":erase": "/runs/CLM-1/erase/",
    ":export": "/runs/CLM-1/export/",
    ":pin": "/checkpoints/01a20375-2ef5-7e6f-835d-4878671b73ec/pin/",
    ":import": "/runs/-/import/",
    ":settle": "/runs/CLM-1/settle/",
    ":start": "/graphs/page_claim/start/",
    ":sign": "/reviews/CLM-1/sign/",
    ":draft": "/reviews/CLM-1/draft/",
    ":seen": "/reviews/CLM-1/seen/",
    ":webhooks": "/webhooks/",
    ":webhook": "/webhooks/01a20375-2ef5-7e6f-835d-4878671b73ec/",
    ":go-on": "/checkpoints/01a20375-2ef5-7e6f-835d-4878671b73ec/go-on/",
}
NOTHING_POSTED = {"/logout/", "/demo/payments/"}
"""Pages that take a POST and read no form: signing out, and the demo's service, which
takes JSON.
"""


@pytest.fixture
def browser(people: People) -> Browser:
    client = Browser()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_json_is_read_by_one_reader_alone() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for app in ("orchestrator", "approvals", "checkpoints")
        for path in (ROOT / app).rglob("*.py")
        if re.search(r"\bjson\.loads?\(|JSONParser\b|JSONDecoder\b", path.read_text())
    }
    assert readers - {"orchestrator/settings.py"} == OWN_WORDS


def test_the_api_refuses_a_key_that_is_given_twice_and_names_its_path(
    run: Run, people: People
) -> None:
    rita = Client(people.reviewer)
    olive = Client(people.starter)
    row = PendingWrite.objects.filter(run=run).first()
    assert row is not None
    item = (
        f'{{"write": "{row.write}", "hash": "{row.hash}",'
        ' "verdict": "reject", "verdict": "approve"}'
    )
    request = run.requests.get()
    before = Run.objects.count()
    for path in ("runs/CLM-1/signatures/", f"requests/{request.id}/decisions/"):
        answer = _posted(rita, path, f'{{"decisions": [{item}]}}')
        assert answer.json()["errors"] == [
            {"path": "decisions[0].verdict", "message": "This is given more than once."}
        ]
    assert not Decision.objects.exists()
    for path in JSON_DOORS:
        answer = _posted(olive, path, '{"reason": "a", "reason": "b"}')
        assert answer.json()["errors"][0]["path"] == "reason"
    nested = _posted(
        olive,
        "runs/",
        '{"graph": "page_claim", "input": {"claim_id": "A", "amount": "1", "amount": "2"}}',
    )
    assert nested.json()["errors"][0]["path"] == "input.amount"
    run.refresh_from_db()
    assert Run.objects.count() == before
    assert run.cancel_at is None
    assert IdempotencyRecord.objects.count() == 0


def _posted(client: Client, path: str, body: str) -> Any:
    headers = {"Idempotency-Key": "once"}
    answer = client.http.generic(
        "POST",
        f"/api/v1/{path}",
        body,
        content_type="application/json",
        headers=headers,
    )
    assert answer.status_code == 400, answer.content
    assert answer["Content-Type"] == "application/problem+json", answer.content
    assert answer.json()["code"] == "invalid_body"
    return answer


def test_an_upload_brings_one_file(people: People) -> None:
    files = [SimpleUploadedFile("a.txt", b"a"), SimpleUploadedFile("b.txt", b"b")]
    answer = Client(people.starter).http.post(
        "/api/v1/uploads/", {"file": files}, format="multipart"
    )
    assert answer.status_code == 400
    assert not Upload.objects.exists()


def test_every_page_that_takes_a_form_refuses_a_field_that_is_given_twice(
    run: Run, browser: Browser
) -> None:
    for path in FORMS.values():
        answer = browser.post(
            path,
            "verdict=reject&verdict=approve",
            content_type="application/x-www-form-urlencoded",
        )
        assert answer.status_code == 400, path
        assert "verdict is given more than once" in answer.content.decode()
    run.refresh_from_db()
    assert run.cancel_at is None
    assert Run.objects.count() == 1
    assert Decision.objects.count() == 0


def test_the_list_of_pages_that_take_a_form_is_complete(
    run: Run, browser: Browser
) -> None:
    """Every address of ours but those of API and admin: whoever takes a POST is in the
    list.
    """
    takes = set()
    for pattern in _pages(get_resolver(), ""):
        path = "/" + re.sub(r"<(\w+:)?(\w+)>", _fill, pattern)
        if browser.post(
            path, "x=1&x=2", content_type="application/x-www-form-urlencoded"
        ).status_code not in (
            404,
            405,
        ):
            takes.add(path)
        browser.force_login(User.objects.get(username="root"))
    assert takes == {*FORMS.values()} | NOTHING_POSTED


def _fill(match: re.Match[str]) -> str:
    values = {
        "ref": "CLM-1",
        "name": "page_claim",
        "run": "01a20375-2ef5-7e6f-835d-4878671b73ec",
    }
    return values.get(match[2], "01a20375-2ef5-7e6f-835d-4878671b73ec")


def _pages(resolver: URLResolver, before: str) -> list[str]:
    collected = []
    for entry in resolver.url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver) and not pattern.startswith(
            ("admin/", "api/")
        ):
            collected += _pages(entry, pattern)
        elif isinstance(entry, URLPattern):
            collected.append(pattern)
    return collected


FORM = "application/x-www-form-urlencoded"


def test_a_form_of_the_admin_refuses_a_field_that_is_given_twice(
    people: People, browser: Browser
) -> None:
    tokens.make_token(people.starter)
    row = ApiToken.objects.get()
    listed = reverse("admin:orchestrator_apitoken_changelist")
    user = reverse("admin:auth_user_change", args=[people.reviewer.pk])
    for path, body in (
        (listed, f"action=revoke&action=delete_selected&_selected_action={row.pk}"),
        (user, "username=rita&username=ravi"),
        (
            reverse("admin:auth_user_password_change", args=[people.reviewer.pk]),
            "password1=a&password1=b",
        ),
        (reverse("admin:auth_group_add"), "name=a&name=b"),
        (reverse("admin:login"), "username=a&username=b"),
    ):
        answer = browser.post(path, body, content_type=FORM)
        assert answer.status_code == 400, path
        assert (
            f"{body.partition('=')[0]} is given more than once"
            in answer.content.decode()
        )
    row.refresh_from_db()
    people.reviewer.refresh_from_db()
    assert row.revoked_at is None
    assert people.reviewer.username == "rita"
    assert Group.objects.filter(name="b").exists() is False


def test_lists_of_the_admin_are_given_several_times(
    people: People, browser: Browser
) -> None:
    for name in ("ci", "cd"):
        tokens.make_token(people.starter, name=name)
    ticked = {
        "action": "revoke",
        "_selected_action": [row.pk for row in ApiToken.objects.all()],
    }
    assert (
        browser.post(
            reverse("admin:orchestrator_apitoken_changelist"), ticked
        ).status_code
        == 302
    )
    assert not ApiToken.objects.filter(revoked_at=None).exists()
    rights = [str(pk) for pk in Permission.objects.values_list("pk", flat=True)[:2]]
    assert (
        browser.post(
            reverse("admin:auth_group_add"), {"name": "two", "permissions": rights}
        ).status_code
        == 302
    )
    assert Group.objects.get(name="two").permissions.count() == 2


def test_files_of_a_form_count_as_fields(claim_graph: None, browser: Browser) -> None:
    files = [SimpleUploadedFile("a.txt", b"a"), SimpleUploadedFile("b.txt", b"b")]
    answer = browser.post("/graphs/page_claim/start/", {"i.letter": files})
    assert answer.status_code == 400
    assert not Upload.objects.exists()


def test_json_in_a_field_of_a_form_refuses_a_key_that_is_given_twice(
    claim_graph: None, browser: Browser
) -> None:
    text = '{"claim_id": "A", "amount": "1", "amount": "2"}'
    answer = browser.post("/graphs/page_claim/start/", {"mode": "json", "json": text})
    assert answer.status_code == 422
    assert "amount is given more than once" in answer.content.decode()
    assert not Run.objects.exists()


def test_json_of_an_edit_refuses_a_key_that_is_given_twice(people: People) -> None:
    browser = Browser()
    browser.force_login(people.reviewer)
    with claims.registered(claims.long_list("loose", 1, value={"a": 1})):
        run = claims.paused("CLM-9", people.starter, graph="loose")
        [row] = PendingWrite.objects.filter(run=run)
        form = {
            "write": str(row.write),
            f"h-{row.write}": row.hash,
            f"v-{row.write}": "edit",
        }
        answer = browser.post(
            f"/reviews/{run.id}/sign/", form | {f"e-{row.write}": '{"a": 1, "a": 2}'}
        )
    assert answer.status_code == 422
    assert "a is given more than once" in answer.content.decode()
    assert not Decision.objects.exists()


def test_commands_refuse_a_key_and_an_option_that_are_given_twice(
    claim_graph: None, tmp_path: Path
) -> None:
    twice = tmp_path / "twice.json"
    twice.write_text('{"claim_id": "A", "amount": "1", "amount": "2"}')
    for args in (
        ["start_run", "page_claim", str(twice)],
        [
            "start_run",
            "page_claim",
            "--set",
            "claim_id=A",
            "--set",
            "amount=1",
            "--set",
            "amount=2",
        ],
        ["start_run", "page_claim", "--set", "letter={}", "--file", f"letter={twice}"],
        ["start_run", "page_claim", "--set", 'holder={"name": "A", "name": "B"}'],
        [
            "settle_run",
            "CLM-1",
            "pay:1:0",
            "--happened",
            "--reason",
            "r",
            "--output",
            str(twice),
        ],
    ):
        with pytest.raises(CommandError, match="given more than once"):
            call_command(*args, stdout=io.StringIO())
    assert not Run.objects.exists()
    assert not Upload.objects.exists()
