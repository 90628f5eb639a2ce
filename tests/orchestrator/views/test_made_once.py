"""Pages that make a run, or send one back, do it once for each time that somebody comes
to them.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from checkpoints.models import Run
from orchestrator import runs
from tests.support.cast import People
from tests.support.histories import policy, pruned
from tests.support.page_forms import fields_of
from tests.support.paid_claims import paid

Browse = Callable[[User], Client]
START = "/graphs/page_claim/start/"
CLAIM = {"mode": "json", "json": '{"claim_id": "C", "amount": "1"}'}
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: People) -> Run:
    return paid("once", people)


def go_on(run: Run) -> str:
    return f"/checkpoints/{run.key}:at-1/go-on/"


def opened(client: Client, link: str, **query: str) -> str:
    """The address at which somebody is who followed the link."""
    answer = client.get(link, query)
    assert answer.status_code == 302
    return str(answer.url)


def fields(client: Client, address: str) -> dict[str, str]:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content.decode()
    return fields_of(answer.content.decode())


def pressed(client: Client, address: str, **typed: str) -> Any:
    """The page, fetched anew and posted."""
    return client.post(address, {**fields(client, address), **typed})


def test_an_address_that_is_fetched_again_has_the_same_token_and_a_link_leads_to_another(
    claim_graph: None, run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    for link in (go_on(run), START):
        address = opened(client, link, how="replay")
        assert "how=replay" in address
        assert fields(client, address)["token"] == fields(client, address)["token"]
        assert (
            fields(client, opened(client, link))["token"]
            != fields(client, address)["token"]
        )


def test_who_opens_the_address_of_somebody_else_gets_a_token_of_his_own(
    claim_graph: None, run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    other = browse(User.objects.create_superuser("root"))
    for link in (go_on(run), START):
        copied = opened(client, link)
        own = opened(other, copied)
        assert own.split("token=")[0] == copied.split("token=")[0]
        assert own != copied


def test_who_may_only_look_gets_no_token(
    claim_graph: None, run: Run, people: People, browse: Browse
) -> None:
    assert browse(people.auditor).get(go_on(run)).status_code == 200


def test_a_page_of_going_on_that_is_fetched_again_and_posted_leads_to_the_run_that_it_made(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    for how in ("fork", "replay"):
        address = opened(client, go_on(run), how=how)
        first, again = (pressed(client, address, do="go") for _ in range(2))
        assert first.status_code == 302
        assert first.url == again.url
    assert Run.objects.exclude(id=run.id).count() == 2


def test_a_page_that_rewound_a_run_and_is_fetched_again_and_posted_does_not_rewind_it_once_more(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    address = opened(client, go_on(run), how="rewind")
    for _ in range(2):
        assert (
            pressed(client, address, do="go", reason="again").url == f"/runs/{run.id}/"
        )
    assert Run.objects.get(id=run.id).line == 2
    assert (
        "This page has already rewound the run"
        in client.get(f"/runs/{run.id}/").content.decode()
    )
    again = opened(client, go_on(run), how="rewind")
    assert pressed(client, again, do="go", reason="on purpose").status_code == 302
    assert Run.objects.get(id=run.id).line == 3


def test_a_page_of_a_run_that_went_back_since_leads_to_the_address_of_what_it_shows_now(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    address = opened(client, go_on(run), how="rewind")
    other = browse(User.objects.create_superuser("root"))
    pressed(other, opened(other, go_on(run), how="rewind"), do="go", reason="mine")
    shown = opened(client, address)
    for _ in range(2):
        assert pressed(client, shown, do="go", reason="again").url == f"/runs/{run.id}/"
    assert Run.objects.get(id=run.id).line == 3


def test_a_start_that_is_fetched_again_and_posted_leads_to_the_run_that_it_started(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    address = opened(client, START)
    first, again = (pressed(client, address, **CLAIM) for _ in range(2))
    assert first.status_code == 302
    assert first.url == again.url
    assert Run.objects.count() == 1
    assert (
        "This run was started already. This is it."
        in client.get(first.url).content.decode()
    )
    pressed(client, opened(client, START), **CLAIM)
    assert Run.objects.count() == 2


def test_a_start_posted_again_with_another_input_says_so_and_needs_a_second_press(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    address = opened(client, START)
    pressed(client, address, **CLAIM)
    other = CLAIM | {"json": '{"claim_id": "D", "amount": "1"}'}
    answer = pressed(client, address, **other)
    html = answer.content.decode()
    assert answer.status_code == 409
    assert Run.objects.count() == 1
    assert "This page started a run already, with another input" in html
    assert f'href="/runs/{Run.objects.get().id}/"' in html
    assert client.post(address, fields_of(html)).status_code == 302
    assert Run.objects.count() == 2


def test_a_start_with_a_key_is_the_run_of_that_key_from_whichever_page(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    address = opened(client, START)
    first = pressed(client, address, **CLAIM, key="K")
    assert pressed(client, opened(client, START), **CLAIM, key="K").url == first.url
    assert pressed(client, address, **CLAIM, key="L").url != first.url


def test_a_token_of_another_page_or_person_starts_nothing(
    claim_graph: None, run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    strange = [fields(client, opened(client, go_on(run)))["token"], "made up"]
    somebody = browse(User.objects.create_superuser("root"))
    strange.append(fields(somebody, opened(somebody, START))["token"])
    for token in strange:
        assert client.post(START, {**CLAIM, "token": token}).status_code == 422
    assert Run.objects.count() == 1


def test_a_page_whose_run_was_removed_makes_it_no_second_time_but_another_run(
    claim_graph: None, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    address = opened(client, START)
    posted = {**fields(client, address), **CLAIM}
    assert client.post(address, posted).status_code == 302
    first = Run.objects.get()
    runs.cancel(first.id, by=people.starter, reason="not needed")
    gone = policy("page_claim", keep_last=None, remove_runs_after_days={"cancelled": 0})
    pruned(gone, by=people.steward)
    assert not Run.objects.exists()
    answer = client.post(address, posted)
    assert answer.status_code == 422
    assert "was removed by retention" in answer.content.decode()
    assert not Run.objects.exists()
    again = {**fields_of(answer.content.decode()), **CLAIM}
    assert client.post(address, again).status_code == 302
    assert Run.objects.get().id != first.id
