"""The door of the metrics opens to the token of the settings, and to nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from checkpoints.conf import conf
from orchestrator.metrics import door, families, readings
from tests.support.rows import a_run

TOKEN = "a-token-of-the-settings-for-a-scraper"
pytestmark = pytest.mark.django_db


@pytest.fixture
def opened(configure: Callable[..., None]) -> None:
    configure(METRICS_TOKEN=TOKEN)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_there_are_no_metrics_without_a_token_in_the_settings(client: Client) -> None:
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics", headers=bearer("")).status_code == 404


@pytest.mark.parametrize("space", [" ", "\n", "\t"])
def test_a_token_that_no_header_could_carry_is_refused(
    space: str, settings: Any
) -> None:
    settings.COUNTERSIGN = {"METRICS_TOKEN": TOKEN + space}
    with pytest.raises(ImproperlyConfigured, match="no white space"):
        conf()


@pytest.mark.usefixtures("opened")
def test_there_are_none_without_the_package(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "is_available", False)
    assert client.get("/metrics", headers=bearer(TOKEN)).status_code == 404


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer(TOKEN[:-1]),
        bearer(f"{TOKEN}x"),
        bearer("schlüssel"),
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
    ],
)
def test_another_token_is_refused_and_nothing_is_read(
    client: Client, headers: dict[str, str], django_assert_num_queries: object
) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]
        answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 403
    assert b"countersign" not in answer.content


@pytest.mark.usefixtures("opened")
def test_no_session_opens_it(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    assert client.get("/metrics").status_code == 403


@pytest.mark.usefixtures("opened")
def test_the_token_opens_it_to_be_read_only(client: Client) -> None:
    a_run(status="queued", key="a-key-of-somebody", graph="claim_payout")
    answer = client.get("/metrics", headers=bearer(TOKEN))
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["Cache-Control"] == "no-store"
    text = answer.content.decode()
    assert 'countersign_runs{status="queued"} 1.0' in text
    assert "a-key-of-somebody" not in text
    assert client.post("/metrics", headers=bearer(TOKEN)).status_code == 405


@pytest.mark.usefixtures("opened")
def test_a_scraper_that_reads_openmetrics_is_given_it(client: Client) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = client.get("/metrics", headers=bearer(TOKEN) | accept)
    assert "openmetrics" in answer.headers["Content-Type"]
    assert answer.content.endswith(b"# EOF\n")


@pytest.mark.usefixtures("opened")
def test_a_scraper_tries_again_where_another_is_still_reading(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise readings.ReadingsUnavailable("Another scrape is still reading.")

    monkeypatch.setattr(families, "kept_readings", refuse)
    answer = client.get("/metrics", headers=bearer(TOKEN))
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
