"""The catalogue, a graph's page, and starting a run by form or JSON."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from checkpoints.models import AuditLine, Run, Upload
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator.views import start
from tests.support import claims
from tests.support.cast import People

Browse = Callable[[User], Client]
URL = "/graphs/page_claim/start/"
GOOD = {
    "mode": "form",
    "i.claim_id": "CLM-1",
    "i.amount": "4512.50",
    "i.cause": "fire",
    "i.holder.name": "Marta",
    "i.holder.phone": "",
    "i.photos": "one.jpg\r\ntwo.jpg",
    "i.urgent": "true",
}


def input_of(run: Run) -> Any:
    return unpack_json(run.input)


def test_the_catalogue_names_each_graph_with_its_effects(
    claim_graph: None, people: People, browse: Browse
) -> None:
    page = browse(people.starter).get(reverse("graphs"))
    card = next(
        graph for graph in page.context["graphs"] if graph["name"] == "page_claim"
    )
    assert dict(card["effects"]) == {"pure": 1, "read": 1, "external": 1, "human": 1}


def test_a_graph_shows_its_gate_in_words_and_how_to_start_it(
    claim_graph: None, people: People, browse: Browse
) -> None:
    html = (
        browse(people.starter)
        .get(reverse("graph", args=["page_claim"]))
        .content.decode()
    )
    assert "one signature of members of reviewer" in html
    assert "/api/v1/runs/" in html
    assert "flowchart" in html


def test_a_graph_that_is_not_registered_is_404(people: People, browse: Browse) -> None:
    assert browse(people.starter).get("/graphs/nothing/").status_code == 404
    assert browse(people.starter).get("/graphs/nothing/start/").status_code == 404


def test_the_form_has_a_control_for_each_kind_of_field(
    claim_graph: None, people: People, browse: Browse
) -> None:
    root = browse(people.starter).get(URL, follow=True).context["form"].root
    kinds = {control.path: control.kind for control in root.walk() if control.path}
    assert kinds == {
        "claim_id": "text",
        "amount": "money",
        "cause": "radio",
        "holder": "group",
        "holder.name": "text",
        "holder.phone": "text",
        "photos": "lines",
        "urgent": "bool",
        "letter": "file",
    }


def test_the_form_posts_what_the_api_would_accept(
    claim_graph: None, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(URL, {**GOOD, "key": "CLM-1"})
    run = Run.objects.get()
    assert answer.url == reverse("run", args=[run.id])
    assert run.key == "CLM-1"
    assert run.started_by == people.starter
    assert run.status == "queued"
    assert input_of(run) == {
        "claim_id": "CLM-1",
        "amount": "4512.50",
        "cause": "fire",
        "holder": {"name": "Marta", "phone": None},
        "photos": ["one.jpg", "two.jpg"],
        "urgent": True,
        "letter": None,
    }


def test_errors_of_the_type_stand_at_their_fields(
    claim_graph: None, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(
        URL, {**GOOD, "i.amount": "much", "i.cause": "flood"}
    )
    assert answer.status_code == 422
    wrong = {
        control.path for control in answer.context["form"].root.walk() if control.error
    }
    assert wrong == {"amount", "cause"}
    assert b"much" in answer.content
    assert not Run.objects.exists()


def test_a_missing_field_is_asked_for(
    claim_graph: None, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(URL, {**GOOD, "i.amount": ""})
    assert answer.status_code == 422
    assert b"This is needed." in answer.content


def test_json_goes_the_same_way(
    claim_graph: None, people: People, browse: Browse
) -> None:
    text = '{"claim_id": "CLM-2", "amount": "1.00"}'
    assert (
        browse(people.starter).post(URL, {"mode": "json", "json": text}).status_code
        == 302
    )
    assert input_of(Run.objects.get())["claim_id"] == "CLM-2"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"claim_id": "x"}', '{"claim_id": "x", "amount": "1", "odd": 1}'],
)
def test_json_that_does_not_fit_is_refused_with_its_text_kept(
    text: str, claim_graph: None, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(URL, {"mode": "json", "json": text})
    assert answer.status_code == 422
    assert answer.context["form"].text == text
    assert answer.context["form"].text_error
    assert not Run.objects.exists()


def test_the_same_key_opens_the_same_run_and_another_input_is_a_conflict(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    first = client.post(URL, {**GOOD, "key": "K"})
    assert client.post(URL, {**GOOD, "key": "K"}).url == first.url
    other = client.post(URL, {**GOOD, "key": "K", "i.amount": "1"})
    assert other.status_code == 409
    assert b"already ran with another input" in other.content
    assert Run.objects.count() == 1


def test_another_input_under_a_key_that_is_taken_shows_what_differs(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    first = client.post(URL, {**GOOD, "key": "K"})
    other = client.post(URL, {**GOOD, "key": "K", "i.amount": "12500"})
    form = other.context["form"]
    assert [(one.path, one.before.text, one.now.text) for one in form.differs] == [
        ("amount", "4,512.50", "12,500")
    ]
    assert first.url in other.content.decode()


def test_who_may_not_see_the_run_of_a_key_learns_nothing_of_it(
    claim_graph: None, people: People, browse: Browse
) -> None:
    browse(people.starter).post(URL, {**GOOD, "key": "K"})
    stranger = people.nobody
    stranger.user_permissions.add(Permission.objects.get(codename="start_run"))
    other = browse(stranger).post(URL, {**GOOD, "key": "K", "i.amount": "12500"})
    assert other.status_code == 409
    assert other.context["form"].taken_by is None
    assert other.context["form"].differs == []


def test_the_key_of_a_run_of_another_graph_names_that_graph(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    client.post(URL, {**GOOD, "key": "K"})
    other = client.post("/graphs/four_eyes/start/", {**GOOD, "key": "K"})
    assert other.status_code == 409
    assert "K is the key of a run of page_claim." in other.content.decode()


def test_an_uploaded_file_becomes_a_reference(
    claim_graph: None, people: People, browse: Browse
) -> None:
    letter = SimpleUploadedFile("letter.txt", b"Dear all")
    browse(people.starter).post(URL, {**GOOD, "i.letter": letter})
    upload = Upload.objects.get()
    assert input_of(Run.objects.get())["letter"] == {
        "file": str(upload.id),
        "name": "letter.txt",
        "size": 8,
        "sha256": upload.sha256,
    }


def test_a_file_is_kept_when_something_else_was_wrong(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    letter = SimpleUploadedFile("letter.txt", b"Dear all")
    again = client.post(URL, {**GOOD, "i.amount": "", "i.letter": letter})
    kept = next(c for c in again.context["form"].root.walk() if c.kind == "file").value
    assert client.post(URL, {**GOOD, "i.letter.kept": kept["file"]}).status_code == 302
    assert input_of(Run.objects.get())["letter"]["name"] == "letter.txt"


def test_a_server_path_is_no_file(
    claim_graph: None, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(
        URL, {**GOOD, "i.letter": "/etc/passwd", "i.letter.kept": "/etc/passwd"}
    )
    assert answer.status_code == 302
    assert input_of(Run.objects.get())["letter"] is None


def test_who_may_not_start_reads_a_sentence(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.auditor)
    page = client.get(URL, follow=True)
    assert b"You may look, but not start runs." in page.content
    assert b'<form class="panel modes"' not in page.content
    assert not AuditLine.objects.exists(), "opening the page is no attempt"
    assert client.post(URL, GOOD).status_code == 403
    assert not Run.objects.exists()
    line = AuditLine.objects.get()
    assert (line.kind, line.actor) == ("refused_right", people.auditor)
    assert line.facts == {"right": "start_run"}


def test_the_line_of_a_refusal_stays_where_the_right_is_lost_on_the_way(
    claim_graph: None,
    people: People,
    browse: Browse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = browse(people.auditor)
    monkeypatch.setattr(start, "require", lambda user, right: None)
    assert client.post(URL, GOOD).status_code == 403
    assert AuditLine.objects.get().kind == "refused_right"


@pytest.mark.parametrize("required", [False, True])
def test_a_file_that_is_too_large_names_the_limit_at_its_field(
    required: bool, claim_graph: None, people: People, browse: Browse, settings: Any
) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "MAX_UPLOAD_BYTES": 1024}
    large = SimpleUploadedFile("letter.txt", b"x" * 2048)
    with claims.registered(
        claims.graph_of(), claims.with_a_file("with_a_file", required=required)
    ):
        answer = browse(people.starter).post(
            "/graphs/with_a_file/start/", {"mode": "form", "i.letter": large}
        )
    assert answer.status_code == 422
    html = answer.content.decode()
    assert html.count("letter.txt has 2.0 KB; a file may have at most 1.0 KB.") == 2
    assert "Choose a file." not in html
    assert not Run.objects.exists()
