"""`manage.py demo_data`."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from approvals import inbox
from checkpoints.models import Run, Upload
from orchestrator import environment, runs
from orchestrator.demo.claims.models import Payment
from orchestrator.demo.people import SIGN_IN, make_people

pytestmark = pytest.mark.django_db(transaction=True)


def demo_data() -> str:
    out = StringIO()
    call_command("demo_data", "--wait", "0", stdout=out)
    return out.getvalue()


def test_the_printed_passwords_open_the_printed_accounts() -> None:
    lines = [line.split() for line in demo_data().splitlines()]
    people = {
        words[0]: words[1]
        for words in lines
        if len(words) == 3 and words[0] in ("olive", "rita", "jonas", "stella", "ada")
    }
    assert len(people) == 5
    assert all(
        authenticate(HttpRequest(), username=name, password=password)
        for name, password in people.items()
    )


def test_who_can_sign_in_is_printed_last() -> None:
    lines = [line.split()[0] for line in demo_data().splitlines() if line.strip()]
    assert lines[-5:] == ["olive", "rita", "jonas", "stella", "ada"]


def test_who_can_sign_in_stays_in_one_line_of_a_file_for_its_owner_alone() -> None:
    demo_data()
    file = environment.sign_ins_file()
    (line,) = file.read_text().splitlines()
    passwords = dict(pair.split() for pair in line.removeprefix(SIGN_IN).split(","))
    assert list(passwords) == ["olive", "rita", "jonas", "stella", "ada"]
    assert authenticate(HttpRequest(), username="rita", password=passwords["rita"])
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_page_to_sign_in_names_the_five_and_what_each_is_for_but_no_password(
    client: Client,
) -> None:
    demo_data()
    page = client.get("/login/").content.decode()
    for person in make_people():
        assert f"<code>{person.user.get_username()}</code>" in page
        assert f"</code> {person.role}" in page
        assert str(person.password) not in page
    assert "signs too, where Rita may not decide alone" in page


def test_without_the_demo_the_page_to_sign_in_names_nobody(
    client: Client, settings: Any
) -> None:
    (templates,) = settings.TEMPLATES
    kept = [
        name
        for name in templates["OPTIONS"]["context_processors"]
        if "demo" not in name
    ]
    settings.TEMPLATES = [
        {**templates, "OPTIONS": {**templates["OPTIONS"], "context_processors": kept}}
    ]
    assert "demo-people" not in client.get("/login/").content.decode()


def test_its_runs_come_to_rest_in_different_states(
    live_server: Any, settings: Any
) -> None:
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{live_server.url}/demo/payments/"
    demo_data()
    for run in Run.objects.all():
        runs.advance(run.id)
    statuses = {run.key: run.status for run in Run.objects.all()}
    assert statuses == {
        "CLM-118851": "completed",
        "CLM-118894": "completed",
        "CLM-118872": "completed",
        "CLM-118870": "completed",
        "CLM-118834": "paused",
        "CLM-118867": "paused",
        "CLM-118880": "paused",
        "CLM-118899": "failed",
        "rows-2026-11": "paused",
    }
    assert Payment.objects.count() == 2
    for name in ("rita", "jonas"):
        assert inbox.waiting_for(User.objects.get(username=name)).count() == 4


def test_repeating_it_changes_nothing_and_prints_the_same_passwords() -> None:
    first = demo_data()
    before = (User.objects.count(), Run.objects.count(), Upload.objects.count())
    assert demo_data() == first
    assert (User.objects.count(), Run.objects.count(), Upload.objects.count()) == before


def test_a_password_that_was_changed_is_neither_printed_nor_set_back() -> None:
    demo_data()
    olive = User.objects.get(username="olive")
    olive.set_password("my own secret one")
    olive.save()
    assert "(changed since)" in demo_data()
    assert authenticate(HttpRequest(), username="olive", password="my own secret one")


def test_it_refuses_a_real_installation(settings: Any) -> None:
    settings.DEBUG = settings.DEMO = False
    with pytest.raises(CommandError, match="COUNTERSIGN_DEMO"):
        demo_data()
    assert not User.objects.exists()


def test_the_page_of_the_outside_world_shows_what_was_done(
    client: Any, live_server: Any, settings: Any
) -> None:
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{live_server.url}/demo/payments/"
    settings.EMAIL_BACKEND = "orchestrator.demo.claims.mail.EmailBackend"
    demo_data()
    runs.advance(runs.get("CLM-118851").id)
    address = reverse("demo_outside")
    assert client.get(address).status_code == 302
    client.force_login(User.objects.get(username="rita"))
    page = client.get(address).content.decode()
    assert [
        page.count(f'data-test="{kind}"')
        for kind in ("case", "payment", "call", "letter")
    ] == [1, 1, 1, 1]
    link = page.split('data-test="letter"><td><a href="')[1].split('"')[0]
    letter = b"".join(client.get(link).streaming_content)
    assert b"To: tor.berg@example.com" in letter
    assert (
        client.get(reverse("demo_letter", args=["..%2Fsecret_key"])).status_code == 404
    )


def test_the_imported_rows_can_be_downloaded_by_who_may_see_the_run(
    client: Any,
) -> None:
    demo_data()
    run = runs.get("rows-2026-11")
    address = reverse("demo_imported", args=[run.id])
    client.force_login(User.objects.get(username="olive"))
    assert client.get(address).status_code == 404
    from orchestrator.demo.imports.models import ImportedRow

    ImportedRow.objects.create(
        run=run.id, row=2, values={"id": "1", "email": "a@example.com"}
    )
    body = b"".join(client.get(address).streaming_content)
    assert body == b"row,id,email,corrected\r\n2,1,a@example.com,no\r\n"
    client.force_login(User.objects.create(username="stranger"))
    assert client.get(address).status_code == 404
