"""A person of a company signs in at its SAML provider on another site: the browser leaves
the cookie of the session out of what is posted from there, and they arrive all the same.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User

from tests.browser.axe import violations
from tests.browser.conftest import LONGEST_WAIT, Page

pytest.importorskip("saml2", reason="the extra test is not installed")

from tests.support.saml_provider import MISSING, XMLSEC, SamlCompany

pytestmark = pytest.mark.skipif(not XMLSEC, reason=MISSING)

FORM = """<!doctype html><title>Acme</title>
<form method="post" action="{site}/login/company/saml/">
<input type="hidden" name="SAMLResponse" value="{answer}"></form>
<script>document.forms[0].submit()</script>"""


@pytest.fixture
def company(tmp_path: Path, settings: Any, site: str) -> Iterator[SamlCompany]:
    class SignInPage(BaseHTTPRequestHandler):
        """Signs in whoever comes as the same person, as a provider that knows them."""

        def do_GET(self) -> None:
            metadata = requests.get(f"{site}/login/company/saml/metadata/", timeout=30)
            answer = company.answer_as("s-1", self.path, metadata=metadata.text)
            body = FORM.format(site=site, answer=answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), SignInPage)
    # By its port alone it would be the same site.
    address = f"http://localhost:{server.server_port}/sign-in"
    company = SamlCompany(tmp_path, sign_in_url=address)
    settings.COUNTERSIGN = company.settings()
    company.set_person("s-1", "acme-reviewers", preferred_username="rosa")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield company
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_person_comes_back_from_another_site(
    site: str, company: SamlCompany, chromium: Any, scripts: bool
) -> None:
    context = chromium.new_context()
    context.set_default_timeout(LONGEST_WAIT)
    window = Page(context.new_page(), site)
    window.open("/login/?next=/account/")
    if not scripts:
        context.route("**/js/company_answer.js", lambda route: route.abort())
    window.page.click("text=Sign in with Acme")
    if not scripts:
        window.page.wait_for_selector("button:has-text('Continue')")
        assert violations(window.page) == []
        window.page.click("button:has-text('Continue')")
    window.page.wait_for_url(f"{site}/account/")
    assert User.objects.get().username == "rosa"
    assert [said for said in window.complaints if "Content Security" in said] == []
    context.close()
