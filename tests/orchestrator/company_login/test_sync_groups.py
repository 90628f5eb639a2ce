"""`manage.py sync_groups` brings accounts to what a directory lists, from files and from
an address; a list that lacks a part changes nothing.
"""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command

from approvals.audit.words import sentence_of
from checkpoints.models import AuditLine
from tests.support.cast import UserFactory

ISSUER = "https://login.example.org"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
TOKEN = "a-token-of-the-directory"


@pytest.fixture(autouse=True)
def configured(settings: Any, db: None) -> None:
    settings.COUNTERSIGN = {
        "OIDC_ISSUER": ISSUER,
        "OIDC_CLIENT_ID": "countersign",
        "COMPANY_GROUPS": {"acme-reviewers": ["reviewer"], "acme-audit": ["auditor"]},
        "SCIM_TOKEN": TOKEN,
    }


def bound(name: str, *groups: str, **facts: Any) -> User:
    user = UserFactory.create(username=name, **facts)
    user.groups.add(*Group.objects.filter(name__in=groups))
    SocialAccount.objects.create(user=user, provider=ISSUER, uid=f"id-{name}")
    return user


def user_of(name: str, **more: Any) -> dict[str, Any]:
    return {"schemas": [USER], "id": f"id-{name}", "userName": name, **more}


def group_of(name: str, *people: str) -> dict[str, Any]:
    members = [{"value": f"id-{person}"} for person in people]
    return {
        "schemas": [GROUP],
        "id": f"g-{name}",
        "displayName": name,
        "members": members,
    }


NOBODY = group_of("acme-audit")
"""A mapped group that has no members, and says so."""


def listed(folder: Path, *resources: Any, total: int | None = None) -> str:
    path = folder / "directory.json"
    content = {"totalResults": total or len(resources), "Resources": resources}
    path.write_text(json.dumps(content))
    return str(path)


def sync(*words: str) -> str:
    out = io.StringIO()
    call_command("sync_groups", *words, stdout=out)
    return out.getvalue()


def groups_of(user: User) -> set[str]:
    return set(user.groups.values_list("name", flat=True))


def test_groups_follow_the_directory_and_who_is_gone_is_switched_off(
    tmp_path: Path,
) -> None:
    Group.objects.create(name="of-this-house")
    rosa = bound("rosa", "reviewer", "of-this-house")
    ben = bound("ben", "reviewer")
    ida = bound("ida", "reviewer")
    root = bound("root", "reviewer", is_superuser=True)
    local = UserFactory.create(username="local")
    local.groups.add(Group.objects.get(name="reviewer"))
    file = listed(
        tmp_path,
        user_of("rosa"),
        user_of("ida", active=False),
        user_of("somebody-new"),
        group_of("acme-audit", "rosa"),
        group_of("acme-reviewers", "ida", "somebody-new"),
    )

    plan = sync(file)
    assert plan.splitlines() == [
        "rosa would be in auditor; out of reviewer",
        "ben would be out of reviewer; switched off",
        "ida would be out of reviewer; switched off",
        "root would be out of reviewer",
        "4 accounts would change. Nothing was done; --apply does it.",
    ]
    assert groups_of(rosa) == {"reviewer", "of-this-house"}
    ben.refresh_from_db()
    assert ben.is_active

    assert "4 accounts changed." in sync(file, "--apply")
    assert groups_of(rosa) == {"auditor", "of-this-house"}
    assert groups_of(local) == {"reviewer"}
    for person, is_active in ((ben, False), (ida, False), (root, True), (local, True)):
        person.refresh_from_db()
        assert person.is_active is is_active, person
    assert not User.objects.filter(username="somebody-new").exists()
    lines = AuditLine.objects.filter(kind="account_changed").order_by("id")
    assert [sentence_of(line.kind, line.facts) for line in lines] == [
        "changed account root (superuser on)",
        "changed account ben (active off)",
        "changed account ida (active off)",
    ]
    assert sync(file).strip() == "Every account is as the directory says."


def test_nobody_is_switched_on_again(tmp_path: Path) -> None:
    rosa = bound("rosa", is_active=False)
    sync(listed(tmp_path, user_of("rosa"), NOBODY), "--apply")
    rosa.refresh_from_db()
    assert not rosa.is_active


@pytest.mark.parametrize(
    ("resources", "total", "words"),
    [
        ([], None, "lists no users"),
        ([user_of("rosa"), NOBODY], 3, "2 of 3 resources"),
        ([user_of("rosa")], None, "no group of COUNTERSIGN_COMPANY_GROUPS"),
        (
            [user_of("rosa"), {"schemas": [GROUP], "displayName": "acme-audit"}],
            None,
            "members",
        ),
        ([user_of("rosa"), NOBODY, NOBODY], None, "two groups"),
        ([user_of("rosa", active="True"), NOBODY], None, "neither true nor false"),
        ([user_of("rosa"), NOBODY | {"members": ["id-rosa"]}], None, "are no list"),
        ([user_of("other"), NOBODY], None, "none of the 1 accounts"),
        ([user_of("rosa"), user_of("rosa"), NOBODY], None, "two users"),
        ([{"schemas": [USER]}, NOBODY], None, "a user has no id"),
        (["rosa"], None, "is no object"),
        (
            [user_of("rosa"), NOBODY | {"members": [{"$ref": "/Users/id-rosa"}]}],
            None,
            "has no value",
        ),
        (
            [user_of("rosa"), NOBODY | {"members": [{"value": 17}]}],
            None,
            "has no value",
        ),
        (
            [
                user_of("rosa"),
                NOBODY | {"members": [{"value": "g-canteen"}]},
                group_of("canteen", "rosa"),
            ],
            None,
            "contains a group",
        ),
        (
            [
                user_of("rosa"),
                NOBODY | {"members": [{"value": "g-17", "type": "Group"}]},
            ],
            None,
            "contains a group",
        ),
    ],
)
def test_a_list_that_cannot_be_right_changes_nothing(
    tmp_path: Path, resources: list[Any], total: int | None, words: str
) -> None:
    rosa = bound("rosa", "reviewer")
    with pytest.raises(CommandError, match=words):
        sync(listed(tmp_path, *resources, total=total), "--apply")
    assert groups_of(rosa) == {"reviewer"}


def test_a_list_that_does_not_say_how_much_there_is_changes_nothing(
    tmp_path: Path,
) -> None:
    rosa = bound("rosa", "reviewer")
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"Resources": [user_of("rosa"), NOBODY]}))
    with pytest.raises(CommandError, match="has no totalResults"):
        sync(str(path), "--apply")
    assert groups_of(rosa) == {"reviewer"}


def test_the_last_member_of_the_last_group_can_be_taken_out(tmp_path: Path) -> None:
    rosa = bound("rosa", "auditor")
    sync(listed(tmp_path, user_of("rosa"), NOBODY), "--apply")
    assert groups_of(rosa) == set()


def test_an_account_that_was_removed_meanwhile_stops_nobody_else() -> None:
    from orchestrator.company_login import directory
    from orchestrator.company_login.scim import DirectoryUser

    gone = bound("gone", "reviewer")
    rosa = bound("rosa", "reviewer")
    nothing = DirectoryUser(active=True, groups=frozenset())
    users = {"id-gone": nothing, "id-rosa": nothing}
    changes = directory.planned_changes(directory.bound_accounts(), users)
    gone.delete()
    for change in changes:
        directory.apply(change)
    assert groups_of(rosa) == set()


def test_an_account_is_brought_to_the_directory_from_where_it_stands_by_then() -> None:
    from orchestrator.company_login import directory
    from orchestrator.company_login.scim import DirectoryUser

    rosa = bound("rosa", "reviewer")
    root = bound("root", "reviewer")
    auditor = DirectoryUser(active=True, groups=frozenset({"acme-audit"}))
    changes = directory.planned_changes(
        directory.bound_accounts(), {"id-rosa": auditor}
    )
    # Meanwhile an administrator changes them.
    rosa.groups.set(Group.objects.filter(name="auditor"))
    User.objects.filter(pk=root.pk).update(is_superuser=True)
    done = [directory.apply(change) for change in changes]
    assert groups_of(rosa) == {"auditor"}
    root.refresh_from_db()
    assert root.is_active
    assert done[0] is None
    assert done[1] is not None
    assert not done[1].switched_off


def test_a_log_in_while_the_directory_is_read_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.company_login import scim
    from orchestrator.company_login.accounts import admitted_account
    from orchestrator.company_login.claims import CompanyPerson

    rosa = bound("rosa", "reviewer")
    ben = bound("ben", "reviewer")
    groups = frozenset({"acme-audit"})
    person = CompanyPerson(ISSUER, "id-rosa", "", "", "", "", groups=groups)

    def read_meanwhile(*_: Any) -> dict[str, scim.DirectoryUser]:
        admitted_account(person)
        return {"id-rosa": scim.DirectoryUser(active=False, groups=frozenset())}

    monkeypatch.setattr(scim, "users_in", read_meanwhile)
    file = listed(tmp_path, user_of("rosa"))
    assert sync(file, "--apply").splitlines()[0].startswith("ben is out of reviewer")
    rosa.refresh_from_db()
    assert (rosa.is_active, groups_of(rosa)) == (True, {"auditor"})
    assert groups_of(ben) == set()


def test_accounts_of_another_provider_are_left_alone(tmp_path: Path) -> None:
    bound("rosa")
    other = UserFactory.create(username="other")
    SocialAccount.objects.create(
        user=other, provider="https://elsewhere.example.org", uid="id-other"
    )
    sync(listed(tmp_path, user_of("rosa"), NOBODY), "--apply")
    other.refresh_from_db()
    assert other.is_active


def test_users_and_groups_may_be_known_by_other_attributes(tmp_path: Path) -> None:
    rosa = bound("rosa")
    resource = user_of("rosa") | {"id": "17", "externalId": "id-rosa"}
    group = group_of("renamed") | {
        "externalId": "acme-audit",
        "members": [{"value": "17"}],
    }
    file = listed(tmp_path, resource, group)
    sync(file, "--user-id", "externalId", "--group-id", "externalId", "--apply")
    assert groups_of(rosa) == {"auditor"}


def test_the_plan_costs_as_much_for_many_as_for_few(
    tmp_path: Path, django_assert_num_queries: Any
) -> None:
    from orchestrator.company_login import directory
    from orchestrator.company_login.scim import DirectoryUser

    for number in range(20):
        bound(f"person-{number}", "reviewer")
    gone = DirectoryUser(active=True, groups=frozenset())
    with django_assert_num_queries(2):
        bound_accounts = directory.bound_accounts()
        changes = directory.planned_changes(bound_accounts, {"id-person-1": gone})
    assert len(changes) == 20


def test_the_command_says_what_it_lacks(settings: Any, tmp_path: Path) -> None:
    bound("rosa")
    UserFactory.create(username="olive")
    file = listed(tmp_path, user_of("rosa"))
    for words, fault in (
        ((), "name files, or an address"),
        ((file, "--url", "https://example.org"), "name files, or an address"),
        (("--url", "http://example.org"), "must begin with https"),
        (("--url", "http://127.0.0.1.example.org"), "must begin with https"),
        (("--url", "http://localhost@example.org"), "must begin with https"),
        ((file, "--by", "olive"), "may not change accounts"),
        ((str(tmp_path / "none.json"),), "cannot read"),
    ):
        with pytest.raises(CommandError, match=fault):
            sync(*words)
    settings.COUNTERSIGN = settings.COUNTERSIGN | {"SCIM_TOKEN": ""}
    with pytest.raises(CommandError, match="COUNTERSIGN_SCIM_TOKEN is not set"):
        sync("--url", "https://example.org")
    settings.COUNTERSIGN = {}
    with pytest.raises(CommandError, match="no provider is configured"):
        sync(file)


class Directory(BaseHTTPRequestHandler):
    """A directory that answers one resource a page, to who has its token."""

    resources: dict[str, list[Any]]
    elsewhere = ""
    leaver = ""
    """The user who is removed once the first page is read."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_error(401)
            return
        if self.elsewhere:
            self.send_response(302)
            self.send_header("Location", self.elsewhere)
            self.end_headers()
            return
        resources = self.resources[address.path.rpartition("/")[2]]
        start = int(parse_qs(address.query)["startIndex"][0]) - 1
        page = {
            "totalResults": len(resources),
            "Resources": resources[start : start + 1],
        }
        resources[:] = [item for item in resources if item["id"] != self.leaver]
        body = json.dumps(page, ensure_ascii=False).encode()
        self.send_response(200)
        # For a text, a client that names no encoding would take Latin-1.
        self.send_header("Content-Type", "text/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Directory)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/scim/v2"
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_a_directory_is_read_page_by_page_from_its_address(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rosa = bound("rosa", "reviewer")
    ida = bound("ida")
    resources = {
        "Users": [user_of("rosa"), user_of("ida"), user_of("new")],
        "Groups": [group_of("acme-audit", "ida"), group_of("canteen", "rosa")],
    }
    monkeypatch.setattr(Directory, "resources", resources, raising=False)
    printed = json.loads(sync("--url", address, "--apply", "--json"))
    assert printed["applied"] is True
    assert {change["account"] for change in printed["changes"]} == {"rosa", "ida"}
    assert (groups_of(rosa), groups_of(ida)) == (set(), {"auditor"})


def test_a_directory_that_changes_while_it_is_read_changes_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound("rosa")
    ida = bound("ida")
    resources = {
        "Users": [user_of("left"), user_of("ida"), user_of("rosa")],
        "Groups": [NOBODY],
    }
    monkeypatch.setattr(Directory, "resources", resources, raising=False)
    monkeypatch.setattr(Directory, "leaver", "id-left")
    with pytest.raises(CommandError, match="changed: try again"):
        sync("--url", address, "--apply")
    ida.refresh_from_db()
    assert ida.is_active


def test_a_directory_is_read_as_utf_8(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rosa = bound("rosé")
    resources = {"Users": [user_of("rosé")], "Groups": [group_of("acme-audit", "rosé")]}
    monkeypatch.setattr(Directory, "resources", resources, raising=False)
    sync("--url", address, "--apply")
    rosa.refresh_from_db()
    assert (rosa.is_active, groups_of(rosa)) == (True, {"auditor"})


def test_a_token_goes_to_no_other_address(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound("rosa")
    monkeypatch.setattr(Directory, "elsewhere", "http://127.0.0.1:9/")
    with pytest.raises(CommandError, match="answered 302"):
        sync("--url", address)
