"""The provider of a company, in a process of its own: `oidc-provider-mock`, whose people
and groups a test sets, and which says when they were asked who they are.

`python -m tests.support.oidc_provider PORT` is that process.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.house.programs import free_port, staying, wait_for

CLIENT = "countersign"
SECRET = "only-for-this-test"


@dataclass
class CompanyDirectory:
    """The people of a company and their groups."""

    issuer: str

    def set_person(self, sub: str, *groups: str, **claims: Any) -> None:
        """Keep a person with these groups, in the place of what was said before."""
        body = {"preferred_username": sub, "groups": list(groups), **claims}
        answer = requests.put(f"{self.issuer}/users/{sub}", json=body, timeout=10)
        assert answer.status_code == 204, answer.text

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return what `COUNTERSIGN` needs for this provider."""
        return {
            "OIDC_ISSUER": self.issuer,
            "OIDC_CLIENT_ID": CLIENT,
            "OIDC_CLIENT_SECRET": SECRET,
            "COMPANY_NAME": "Acme",
            "COMPANY_GROUPS": {
                "acme-reviewers": ["reviewer"],
                "acme-auditors": ["auditor"],
            },
            **more,
        }

    def answer_as(self, sub: str, address: str) -> str:
        """Return the address to which a browser is sent back that came to `address`, and
        at which that person signs in.
        """
        answer = requests.post(
            address, data={"sub": sub}, allow_redirects=False, timeout=10
        )
        assert answer.status_code == 302, answer.text
        return answer.headers["Location"]


@contextmanager
def running(folder: Path) -> Iterator[CompanyDirectory]:
    """A provider that answers while the block lasts."""
    port = free_port()
    log = folder / "provider.log"
    command = [sys.executable, "-m", "tests.support.oidc_provider", str(port)]
    env = dict(os.environ)
    with staying(command, cwd=Path(__file__).parents[2], env=env, log=log):
        wait_for(port, log)
        yield CompanyDirectory(f"http://127.0.0.1:{port}")


def serve(port: int) -> None:
    """Answer until the process is ended."""
    import oidc_provider_mock
    from oidc_provider_mock import _storage
    from werkzeug.serving import make_server

    # It asks at each log-in, and does not say when.
    asked_now = lambda code: int(time.time())  # noqa: E731
    _storage.AuthorizationCode.get_auth_time = asked_now  # type: ignore[method-assign]
    make_server(
        "127.0.0.1", port, oidc_provider_mock.app(), threaded=True
    ).serve_forever()


if __name__ == "__main__":
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
    serve(int(sys.argv[1]))
