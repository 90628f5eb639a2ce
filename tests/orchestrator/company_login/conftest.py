"""A provider for the session, and people who sign in at it."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from tests.support import oidc_provider
from tests.support.oidc_provider import CompanyDirectory


@pytest.fixture(scope="session")
def provider(tmp_path_factory: Any) -> Iterator[CompanyDirectory]:
    pytest.importorskip("oidc_provider_mock", reason="the extra test is not installed")
    with oidc_provider.running(tmp_path_factory.mktemp("provider")) as directory:
        yield directory


@pytest.fixture
def directory(provider: CompanyDirectory, settings: Any, db: None) -> CompanyDirectory:
    """The provider, configured."""
    settings.COUNTERSIGN = provider.settings()
    return provider


@pytest.fixture
def sign_in(directory: CompanyDirectory) -> Callable[..., Any]:
    """Sign a person in, and return the answer to their way back."""

    def sign_in(sub: str, client: Client | None = None, begin: str = "") -> Any:
        client = client or Client()
        answer = client.get(begin or "/login/company/")
        assert answer.status_code == 302, answer.content.decode()
        back = urlsplit(directory.answer_as(sub, answer["Location"]))
        answer = client.get(f"{back.path}?{back.query}")
        answer.browser = client
        return answer

    return sign_in
