"""A browser on a server of its own. Skipped, with the reason, where no chromium is
installed.
"""

import asyncio
import io
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import Client

from checkpoints.core.status import Status
from orchestrator import runs
from tests.__main__ import BROWSERS
from tests.support import cast, claims

CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
KEY = "CLM-118894"
"""A run of the demo: small, so it pays itself, to an account that was closed."""
LONGEST_WAIT = 30_000
"""Milliseconds until something that a page must show counts as missing; a machine may
be busy with other things.
"""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        reason = "the extra e2e is not installed"
    else:
        reason = "" if CHROMIUM else "no chromium is installed"
    for item in items:
        if reason and "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def rows_are_read_beside_the_browser(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Playwright's synchronous interface runs an event loop in this thread, where
    Django would refuse the ORM. Between these tests, others see no such loop.
    """
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    if "chromium" in request.fixturenames:
        loop = request.getfixturevalue("chromium_loop")
        asyncio._set_running_loop(loop)
    yield
    asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def chromium_loop(chromium: Any) -> Iterator[asyncio.AbstractEventLoop]:
    """Return the loop of playwright, which its end needs too."""
    loop = asyncio.get_running_loop()
    yield loop
    asyncio._set_running_loop(loop)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address(django_db_setup: None) -> Iterator[str]:
    """The whole application, sockets included, in a thread of this process: it sees the
    same rows and graphs.
    """
    from tests.browser.server import serving

    # Its threads would keep their connections for a minute, and the test database could
    # not be dropped.
    connections.settings["default"]["CONN_MAX_AGE"] = 0
    with serving() as address:
        yield address


@pytest.fixture
def site(transactional_db: None, address: str) -> Iterator[str]:
    with claims.registered(claims.graph_of()):
        yield address


@pytest.fixture
def people(transactional_db: None) -> cast.People:
    return cast.People()


@pytest.fixture
def demo(site: str, settings: Any) -> Callable[[str], User]:
    """The demo after `make demo`: its runs have come to rest. Gives a person of it by
    name.
    """
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{site}/demo/payments/"
    call_command("demo_data", "--wait", "0", stdout=io.StringIO())
    assert runs.advance(runs.get(KEY).id).status == Status.COMPLETED

    def person(name: str) -> User:
        user = User.objects.get(username=name)
        # Another password would sign out who is signed in already.
        if not user.check_password(cast.PASSWORD):
            user.set_password(cast.PASSWORD)
            user.save()
        return user

    return person


class Page:
    """A page in which somebody is signed in; what the browser complains of is kept in
    `complaints`.
    """

    def __init__(self, page: Any, site: str) -> None:
        self.page = page
        self.site = site
        self.complaints: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, message: Any) -> None:
        if message.type not in ("error", "warning"):
            return
        # A page that is drawn seconds after it was loaded, on a machine that is busy.
        if "not used within a few seconds" in message.text:
            return
        self.complaints.append(message.text)

    def open(self, path: str) -> None:
        self.page.goto(self.site + path)

    def sign_in(self, user: User) -> None:
        self.open("/login/")
        self.page.fill("#id_username", user.username)
        self.page.fill("#id_password", cast.PASSWORD)
        self.page.click("button.sign")
        self.page.wait_for_url(lambda url: "/login/" not in url)


def session_cookie(user: User, site: str) -> dict[str, str]:
    """Return the cookie of a new session of that person, as the browser takes it."""
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": site}


@pytest.fixture
def browse(chromium: Any, site: str) -> Iterator[Callable[..., Page]]:
    """A new window in which that person is signed in. Options go to the browser's
    context.
    """
    contexts = []

    def as_(user: User, **options: Any) -> Page:
        context = chromium.new_context(
            **{"viewport": {"width": 1440, "height": 1000}, **options}
        )
        context.set_default_timeout(LONGEST_WAIT)
        contexts.append(context)
        context.add_cookies([session_cookie(user, site)])
        page = Page(context.new_page(), site)
        page.open("/")
        return page

    yield as_
    for context in contexts:
        context.close()


@pytest.fixture
def worker() -> Iterator[Callable[[str], None]]:
    """Do what a worker would with a run, beside the test: `worker(key)` returns at
    once.
    """
    threads = []

    def work(key: str) -> None:
        def go() -> None:
            try:
                runs.advance(key)
            finally:
                connections.close_all()

        thread = threading.Thread(target=go)
        thread.start()
        threads.append(thread)

    yield work
    for thread in threads:
        thread.join(20)
