"""Pages of bundles: an export is a file, an import is a form, and an imported run says
what it is.
"""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from approvals.exported_receipt import PAYLOAD_TYPE
from approvals.models import Decision, Receipt
from checkpoints import bundle
from checkpoints.models import AuditLine, Run
from tests.support.bundles import forgotten, signed_run
from tests.support.cast import People
from tests.support.dsse import opened
from tests.support.forging import tamper

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def signed(tmp_path: Path, people: People) -> Run:
    return signed_run(tmp_path, people)


def _file(run: Run) -> bytes:
    out = io.BytesIO()
    bundle.export(run.id, out)
    return out.getvalue()


def _post(client: Client, data: bytes) -> str:
    answer = client.post(
        reverse("import"), {"file": SimpleUploadedFile("run.jsonl", data)}, follow=True
    )
    return answer.content.decode()


def test_the_page_of_a_run_leads_to_its_bundle_for_who_may_export(
    signed: Run, people: People, browse: Browse
) -> None:
    page = reverse("run", args=[signed.id])
    address = reverse("export", args=[signed.id])
    assert address in browse(people.auditor).get(page).content.decode()
    assert address not in browse(people.starter).get(page).content.decode()
    form = browse(people.auditor).get(address)
    assert "Export bundle" in form.content.decode()
    assert browse(people.auditor).head(address).status_code == 200
    assert not AuditLine.objects.filter(kind="run_exported").exists(), (
        "who only looks exports nothing"
    )
    answer = browse(people.auditor).post(address)
    data = b"".join(answer.streaming_content)  # type: ignore[attr-defined]
    assert bundle.verify(io.BytesIO(data), bundle.public_key()).ok
    for method in ("get", "post"):
        assert getattr(browse(people.starter), method)(address).status_code == 403
        assert getattr(browse(people.nobody), method)(address).status_code == 404
    line = AuditLine.objects.get(kind="refused_right")  # of the post alone
    assert line.actor == people.starter
    assert line.run == signed.id
    assert line.facts == {"right": "export_run"}


def test_a_page_of_bundles_that_is_refused_says_which_right_is_missing_and_who_can_give_it(
    signed: Run, people: People, browse: Browse
) -> None:
    pages = {
        "export": (
            reverse("export", args=[signed.id]),
            "Exporting a run needs the right to export, which auditors have.",
        ),
        "import": (
            reverse("import"),
            "Importing a run needs the right to import, which stewards have.",
        ),
    }
    for address, sentence in pages.values():
        answer = browse(people.starter).get(address)
        assert answer.status_code == 403
        assert (
            f"{sentence} Whoever manages the accounts can give it to you."
            in answer.content.decode()
        )


def test_no_other_site_lets_a_browser_export(signed: Run, people: People) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.auditor)
    assert client.post(reverse("export", args=[signed.id])).status_code == 403
    assert not AuditLine.objects.filter(kind="run_exported").exists()


def test_a_run_that_does_not_verify_is_offered_as_it_is(
    signed: Run, people: People, browse: Browse
) -> None:
    tamper(signed, label="another")
    ada = browse(people.auditor)
    address = reverse("export", args=[signed.id])
    answer = ada.post(address)
    assert answer.status_code == 409
    assert "Nothing was exported" in answer.content.decode()
    assert 'name="as_is" value="yes"' in answer.content.decode()
    assert ada.post(address, {"as_is": "yes"}).status_code == 200


def test_a_steward_imports_a_bundle_and_its_page_says_where_it_comes_from(
    signed: Run, people: People, browse: Browse
) -> None:
    data = _file(signed)
    sam = browse(people.steward)
    forgotten(signed)
    assert reverse("import") in sam.get(reverse("runs")).content.decode()
    html = _post(sam, data)
    assert 'data-test="imported"' in html
    assert "Imported, to be read and forked." in html
    assert "this installation" in html
    assert "Fork from" in html
    assert "Rewind to" not in html
    assert "Replay from" not in html
    assert reverse("cancel", args=[signed.id]) not in html
    assert ">imported<" in sam.get(reverse("runs")).content.decode()
    assert "imported before" in _post(sam, data)


def test_each_tab_of_an_imported_run_opens(
    signed: Run, people: People, browse: Browse
) -> None:
    data = _file(signed)
    sam = browse(people.steward)
    forgotten(signed)
    _post(sam, data)
    for tab in ("changed", "state", "writes", "results", "memory", "events"):
        assert (
            sam.get(reverse("run", args=[signed.id]), {"tab": tab}).status_code == 200
        )
    assert sam.get(reverse("review", args=[signed.id])).status_code == 200
    assert (
        sam.get(
            reverse("go_on", args=[signed.head]), {"how": "fork"}, follow=True
        ).status_code
        == 200
    )


def test_what_is_refused_is_said_and_changes_nothing(
    signed: Run, people: People, browse: Browse
) -> None:
    data = _file(signed)
    sam = browse(people.steward)
    html = _post(sam, data)
    assert "is here already" in html
    assert f'<a href="{reverse("run", args=[signed.id])}">Open that run</a>' in html
    assert "Nothing was changed." in _post(sam, data[:-5])
    assert "Choose a file" in sam.post(reverse("import")).content.decode()
    for who in (people.starter, people.auditor):
        assert (
            browse(who)
            .post(reverse("import"), {"file": SimpleUploadedFile("a", data)})
            .status_code
            == 403
        )
        assert (
            reverse("import") not in browse(who).get(reverse("runs")).content.decode()
        )
    assert Run.objects.count() == 1
    assert AuditLine.objects.filter(kind="refused_import").count() == 4


def test_a_receipt_leads_to_the_signed_file_of_each_decision(
    signed: Run, people: People, browse: Browse
) -> None:
    receipt = Receipt.objects.get(run=signed)
    rita = browse(people.reviewer)
    html = rita.get(reverse("receipt", args=[receipt.id])).content.decode()
    for decision in Decision.objects.filter(run=signed.id):
        address = reverse("receipt_file", args=[decision.id])
        assert address in html
        assert rita.head(address).status_code == 200
        assert browse(people.nobody).head(address).status_code == 404
        assert not AuditLine.objects.filter(
            kind="receipt_exported", facts__decision=str(decision.id)
        ).exists()
        document = opened(rita.get(address).content, PAYLOAD_TYPE, bundle.public_key())
        assert document["decision"]["id"] == str(decision.id)
        assert browse(people.starter).get(address).status_code == 404
        assert browse(people.nobody).get(address).status_code == 404


def test_a_receipt_of_a_tampered_decision_is_not_given(
    signed: Run, people: People, browse: Browse
) -> None:
    decision = Decision.objects.filter(run=signed.id).first()
    assert decision is not None
    tamper(decision, by_name="mallory")
    answer = browse(people.reviewer).get(reverse("receipt_file", args=[decision.id]))
    assert answer.status_code == 409
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
