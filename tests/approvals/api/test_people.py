"""Taking a request and handing it on over the API."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from approvals import reviews
from approvals.models import Delegation, RequestClaim, RequestComment
from checkpoints.models import Run
from tests.support.api_people import Client
from tests.support.cast import People, UserFactory
from tests.support.standing_policies import policy_of, waiting

ONCE = {"Idempotency-Key": "once"}


def asked(client: Client) -> dict[str, Any]:
    (line,) = client.get("requests/", waiting="me").json()["results"]
    shown: dict[str, Any] = line
    return shown


def test_a_request_is_taken_and_given_back(rita: Client, paused: Run) -> None:
    line = asked(rita)
    assert line["claim"] is None
    answer = rita.post(f"requests/{line['id']}/claim/")
    assert answer.status_code == 200
    claim = answer.json()["claim"]
    assert claim == {
        "by": "rita",
        "assigned_by": "",
        "at": claim["at"],
        "until": None,
        "exclusive": False,
    }
    assert asked(rita)["claim"] == claim
    assert rita.post(f"requests/{line['id']}/release/").json()["claim"] is None


def test_a_steward_hands_a_request_to_its_reviewer(
    rita: Client, paused: Run, people: People
) -> None:
    line = asked(rita)
    stella = Client(people.steward)
    answer = stella.post(f"requests/{line['id']}/assign/", {"to": "rita"})
    assert answer.status_code == 200
    assert answer.json()["claim"]["assigned_by"] == "stella"
    refused = rita.post(f"requests/{line['id']}/assign/", {"to": "nobody"})
    assert refused.status_code == 422
    unknown = stella.post(f"requests/{line['id']}/assign/", {"to": "zoe"})
    assert unknown.json()["detail"] == "there is no user zoe"
    assert RequestClaim.objects.get().by_name == "rita"


def test_who_holds_a_request_is_named_to_the_next(
    rita: Client, paused: Run, people: People
) -> None:
    line = asked(rita)
    rita.post(f"requests/{line['id']}/claim/")
    # She sees the run, and is none of its reviewers.
    stella = Client(people.steward)
    assert stella.post(f"requests/{line['id']}/claim/").status_code == 403
    assert stella.post(f"requests/{line['id']}/release/").status_code == 200


def test_what_one_may_not_see_is_unknown(
    rita: Client, nobody: Client, paused: Run
) -> None:
    line = asked(rita)
    for act in ("claim", "release", "assign"):
        body = {"to": "rita"} if act == "assign" else {}
        answer = nobody.post(f"requests/{line['id']}/{act}/", body)
        assert answer.status_code == 404


def test_a_token_without_the_scope_takes_nothing(paused: Run, people: People) -> None:
    reader = Client(people.reviewer, ["read"])
    line = asked(reader)
    assert reader.post(f"requests/{line['id']}/claim/").status_code == 403
    assert not RequestClaim.objects.exists()


def in_a_day() -> str:
    return (timezone.now() + timedelta(days=1)).isoformat()


def delegated(user: User) -> dict[str, Any]:
    """The delegation by which Ben decides for a person, as the API shows it."""
    ends = timezone.now() + timedelta(days=1)
    reviews.delegate(to=User.objects.get(username="ben"), by=user, ends=ends)
    client: dict[str, Any] = Client(user).get("delegations/").json()["results"][0]
    return client


def test_nobody_makes_a_delegation_over_the_api(rita: Client, people: People) -> None:
    UserFactory.create(username="ben")
    delegation = {"to": "ben", "ends": in_a_day()}
    assert rita.post("delegations/", delegation).status_code == 405
    in_session = APIClient()
    in_session.force_login(people.reviewer)
    answer = in_session.post("/api/v1/delegations/", delegation, format="json")
    assert answer.status_code == 405
    assert not Delegation.objects.exists()


def test_who_lost_sight_of_what_they_took_still_gives_it_back(
    rita: Client, paused: Run, people: People
) -> None:
    line = asked(rita)
    rita.post(f"requests/{line['id']}/claim/")
    # The gate names its reviewer by the name of their account.
    people.reviewer.username = "rea"
    people.reviewer.save()
    assert rita.get(f"requests/{line['id']}/").status_code == 404
    answer = rita.post(f"requests/{line['id']}/release/")
    assert answer.status_code == 204
    assert not RequestClaim.objects.exists()
    assert rita.post(f"requests/{line['id']}/release/").status_code == 404


def test_who_decides_for_another_does_so_over_the_api_too(
    rita: Client, paused: Run, people: People
) -> None:
    ben = Client(UserFactory.create(username="ben"))
    line = asked(rita)
    assert ben.get(f"requests/{line['id']}/").status_code == 404
    delegation = delegated(people.reviewer)
    assert delegation["delegator"] == "rita"
    assert delegation["delegate"] == "ben"
    assert delegation["fault"] is None
    assert ben.get("delegations/").json()["results"] == [delegation]

    shown = ben.get(f"requests/{line['id']}/").json()
    assert shown["may_decide"] == {"yes": True, "why_not": ""}
    assert asked(ben)["id"] == line["id"]
    write = shown["writes"][0]
    decision = {"write": write["id"], "hash": write["hash"], "verdict": "approve"}
    receipt = ben.post(
        f"requests/{line['id']}/decisions/", {"decisions": [decision]}
    ).json()
    assert receipt["lines"][0]["delegator"] == "rita"
    decided = rita.get(f"runs/{paused.id}/decisions/").json()["results"]
    assert [row["delegator"] for row in decided] == ["rita"]

    revoked = ben.post(f"delegations/{delegation['id']}/revoke/")
    assert revoked.json()["revoked_at"]
    assert ben.get(f"requests/{line['id']}/").status_code == 404


def test_a_delegation_that_does_not_concern_one_is_unknown(
    rita: Client, nobody: Client, people: People
) -> None:
    UserFactory.create(username="ben")
    delegation = delegated(people.reviewer)
    assert nobody.post(f"delegations/{delegation['id']}/revoke/").status_code == 404
    assert nobody.get("delegations/").json()["results"] == []


def test_who_is_steward_no_more_gets_no_kept_answer_about_a_delegation(
    people: People,
) -> None:
    UserFactory.create(username="ben")
    delegation = delegated(people.reviewer)
    steward = people.steward
    address = f"delegations/{delegation['id']}/revoke/"
    assert Client(steward).post(address, **ONCE).status_code == 200
    assert Client(steward).post(address, **ONCE).json()["delegator"] == "rita"

    steward.groups.clear()
    assert Client(steward).post(address, **ONCE).status_code == 404


def test_who_is_steward_no_more_gets_no_kept_answer_about_a_standing_policy(
    people: People,
) -> None:
    policy = policy_of(waiting(reviewers=["user:rita"]), people.reviewer)
    steward = people.steward
    address = f"standing-policies/{policy.id}/revoke/"
    assert Client(steward).post(address, **ONCE).status_code == 200
    assert Client(steward).post(address, **ONCE).json()["by"] == "rita"

    steward.groups.clear()
    assert Client(steward).post(address, **ONCE).status_code == 404


def test_comments_are_written_once_and_read_in_pages(
    rita: Client, nobody: Client, paused: Run
) -> None:
    address = f"requests/{asked(rita)['id']}/comments/"
    assert rita.get(address).json()["results"] == []
    once = {"Idempotency-Key": "a"}
    for _ in range(2):
        answer = rita.post(address, {"text": "First."}, **once)
        assert answer.status_code == 201
    rita.post(address, {"text": "Second."})
    page = rita.get(address, page_size=1).json()
    (line,) = page["results"]
    assert (line["text"], line["by"], line["write"]) == ("First.", "rita", None)
    assert line["fault"] is None
    assert page["next"]
    assert nobody.get(address).status_code == 404
    assert nobody.post(address, {"text": "Hello"}).status_code == 404
    assert rita.post(address, {"text": "x" * 4001}).status_code == 400
    assert RequestComment.objects.count() == 2


def test_a_list_of_comments_does_not_read_the_input_of_the_run_for_each(
    rita: Client, paused: Run
) -> None:
    address = f"requests/{asked(rita)['id']}/comments/"
    rita.post(address, {"text": "First."})
    with CaptureQueriesContext(connection) as captured:
        assert rita.get(address).json()["results"]
    (statement,) = [
        query["sql"]
        for query in captured
        if 'FROM "approvals_requestcomment"' in query["sql"]
    ]
    assert '"encrypted"' in statement
    assert '"input"' not in statement
    rita.post(address, {"text": "Second."})
    with CaptureQueriesContext(connection) as larger:
        assert len(rita.get(address).json()["results"]) == 2
    assert len(larger) == len(captured)


def test_a_token_that_only_reads_writes_no_comment(paused: Run, people: People) -> None:
    reader = Client(people.reviewer, ["read"])
    address = f"requests/{asked(reader)['id']}/comments/"
    assert reader.post(address, {"text": "Hello"}).status_code == 403
    assert reader.get(address).status_code == 200


def test_a_request_is_handed_over_with_a_comment(
    rita: Client, paused: Run, people: People
) -> None:
    line = asked(rita)
    body = {"to": "rita", "comment": "Yours."}
    answer = Client(people.steward).post(f"requests/{line['id']}/assign/", body)
    assert answer.status_code == 200
    assert RequestComment.objects.get().by_name == "stella"
