"""What is posted of a group: refused without proof of what was opened, and for another
state than the one shown.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags

from approvals.models import Decision, Draft
from approvals.views.group_form import opened_token
from checkpoints.models import PendingWrite, Run
from tests.support import claims
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[[User], Client]


@pytest.fixture
def twenty(people: People) -> Iterator[Run]:
    """A run that asks for twenty notes of one likeness."""
    with claims.registered(claims.many_writes("twenty_notes", 20)):
        yield claims.paused("CLM-20", people.starter, graph="twenty_notes")


def group_of(client: Client, run: Run) -> Any:
    """The only group of the review."""
    page = client.get(reverse("review", args=[run.id])).context["page"]
    (group,) = page.groups
    return page, group


def posted(
    page: Any, group: Any, user: User, *, opened: int = 3, **fields: str
) -> dict[str, Any]:
    """Return what approving the group posts, with proof of so many opened samples."""
    tokens = {
        f"o-{sample.write}": opened_token(user.pk, sample.write, sample.row.hash)
        for sample in group.samples[:opened]
    }
    own = {"key": page.key, "number": str(page.number), "group": group.id}
    return {
        **own,
        f"g-{group.id}": "approve",
        f"gs-{group.id}": group.seal,
        **tokens,
        **fields,
    }


def test_a_group_is_signed_write_by_write_with_the_hash_of_each(
    twenty: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    page, group = group_of(client, twenty)
    answer = client.post(
        reverse("sign", args=[twenty.id]), posted(page, group, people.reviewer)
    )
    assert answer.status_code == 302
    decided = dict(Decision.objects.values_list("write", "seen_hash"))
    assert decided == dict(PendingWrite.objects.values_list("write", "hash"))


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_approving_a_group_is_refused_until_three_samples_were_opened(
    twenty: Run, people: People, browse: Browse, opened: int
) -> None:
    client = browse(people.reviewer)
    page, group = group_of(client, twenty)
    body = posted(page, group, people.reviewer, opened=opened)
    # That the samples are named among the writes proves nothing.
    body["write"] = [sample.write for sample in group.samples]
    answer = client.post(reverse("sign", args=[twenty.id]), body)
    assert answer.status_code == 422
    assert "Open the samples of this group" in answer.content.decode()
    client.post(reverse("draft", args=[twenty.id]), body)
    assert not Decision.objects.exists()
    assert not Draft.objects.exists()


def test_what_another_person_opened_proves_nothing(
    twenty: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    page, group = group_of(client, twenty)
    answer = client.post(
        reverse("sign", args=[twenty.id]), posted(page, group, people.second_reviewer)
    )
    assert answer.status_code == 422
    assert not Decision.objects.exists()


def test_rejecting_a_group_needs_no_sample(
    twenty: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    page, group = group_of(client, twenty)
    body = posted(page, group, people.reviewer, opened=0) | {f"g-{group.id}": "reject"}
    assert client.post(reverse("sign", args=[twenty.id]), body).status_code == 302
    assert set(Decision.objects.values_list("verdict", flat=True)) == {"reject"}


def test_a_group_that_changed_since_it_was_shown_is_not_signed(
    twenty: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    page, group = group_of(client, twenty)
    body = posted(page, group, people.reviewer) | {f"gs-{group.id}": "0" * 64}
    answer = client.post(reverse("sign", args=[twenty.id]), body)
    assert answer.status_code == 422
    assert "changed since you opened the page" in answer.content.decode()
    assert not Decision.objects.exists()


def test_drafts_of_another_page_are_not_signed_unseen(
    twenty: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    page, group = group_of(client, twenty)
    reject = posted(page, group, people.reviewer) | {f"g-{group.id}": "reject"}
    assert (
        client.post(
            reverse("draft", args=[twenty.id]), reject, headers={"X-Fragment": "1"}
        ).status_code
        == 200
    )
    assert Draft.objects.count() == 20
    answer = client.post(
        reverse("sign", args=[twenty.id]), posted(page, group, people.reviewer)
    )
    assert answer.status_code == 409
    assert "newer choices" in answer.content.decode()
    assert not Decision.objects.exists()


def test_queries_do_not_grow_with_the_writes_of_a_group(
    people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    with claims.registered(
        claims.many_writes("few_notes", 13), claims.many_writes("more_notes", 130)
    ):
        client = browse(people.reviewer)
        counts = []
        for key, graph in (("CLM-1", "few_notes"), ("CLM-2", "more_notes")):
            run = claims.paused(key, people.starter, graph=graph)
            with django_assert_max_num_queries(30) as seen:
                assert client.get(reverse("review", args=[run.id])).status_code == 200
            counts.append(len(seen.captured_queries))
        assert counts[0] == counts[1]


def test_several_groups_are_signed_at_once_and_what_then_happens_is_summed_up(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.two_likenesses("two_likenesses", 14)):
        run = claims.paused("CLM-2", people.starter, graph="two_likenesses")
        client = browse(people.reviewer)
        page = client.get(reverse("review", args=[run.id])).context["page"]
        body: dict[str, Any] = {}
        for group in page.groups:
            body |= posted(page, group, people.reviewer)
        body["group"] = [group.id for group in page.groups]
        assert len(body["group"]) == 2
        answer = client.post(
            reverse("draft", args=[run.id]), body, headers={"X-Fragment": "1"}
        )
        assert answer.status_code == 200
        assert "14 writes" in strip_tags(answer.content.decode())
        assert answer.content.decode().count("<li>") < 6
        body["number"] = str(int(page.number) + 1)
        assert client.post(reverse("sign", args=[run.id]), body).status_code == 302
        assert Decision.objects.count() == 14
