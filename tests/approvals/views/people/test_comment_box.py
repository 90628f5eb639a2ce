"""Comments on the page of a review and of a receipt, with plain forms."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals import reviews
from approvals.models import Receipt, RequestComment
from approvals.people.comments import SHOWN
from checkpoints.models import Run
from tests.support.cast import People, named
from tests.support.run_actions import pending, request, sign

Browse = Callable[[User], Client]


def page_of(browse: Browse, user: User, run: Run, **query: Any) -> str:
    answer = browse(user).get(reverse("review", args=[run.id]), query)
    html: str = answer.content.decode()
    return html


def post(browse: Browse, user: User, run: Run, **fields: str) -> Any:
    fields = {"about": str(request(run).id), **fields}
    return browse(user).post(reverse("comment", args=[run.id]), fields, follow=True)


def test_a_person_comments_with_a_plain_form_and_others_read_it(
    run: Run, people: People, browse: Browse
) -> None:
    named(people.reviewer, "Rita Rivers")
    html = page_of(browse, people.reviewer, run)
    assert "Nobody has commented on this yet." in html
    assert "not part of what" in html
    post(browse, people.reviewer, run, text="Is this\r\nright?")
    html = page_of(browse, people.second_reviewer, run)
    assert "Rita Rivers" in html
    assert "<bdi>Is this</bdi><br><bdi>right?</bdi>" in html
    assert 'data-comments="1"' in html


def test_addresses_of_the_web_are_links_and_nothing_else_is_markup(
    run: Run, people: People, browse: Browse
) -> None:
    text = "See https://example.org/a?b=1. <b>Not</b> javascript:alert(1)"
    reviews.comment(request(run).id, text, by=people.reviewer)
    html = page_of(browse, people.reviewer, run)
    address = "https://example.org/a?b=1"
    link = f'<a href="{address}" rel="noopener noreferrer">{address}</a>. '
    assert link in html
    assert "&lt;b&gt;Not&lt;/b&gt;" in html
    assert 'href="javascript' not in html


def test_a_comment_on_one_write_names_it(
    run: Run, people: People, browse: Browse
) -> None:
    rows = pending(run)
    about = f"{request(run).id} {rows[0].write}"
    post(browse, people.reviewer, run, text="This one.", about=about)
    assert RequestComment.objects.get().write == rows[0].write
    html = page_of(browse, people.reviewer, run)
    assert html.count('data-test="comment"') == 1
    assert "on one write" not in html
    assert '<span class="faint">' in html.partition('data-test="comment"')[2]


def test_the_newest_stand_on_the_page_and_earlier_ones_behind_a_link(
    run: Run, people: People, browse: Browse
) -> None:
    for number in range(SHOWN + 1):
        reviews.comment(request(run).id, f"Number {number}.", by=people.reviewer)
    html = page_of(browse, people.reviewer, run)
    assert "Number 0." not in html
    assert f"Number {SHOWN}." in html
    assert "Earlier comments" in html
    html = page_of(browse, people.reviewer, run, comments="2")
    assert "Number 0." in html
    assert "Later comments" in html


def test_a_page_past_the_end_shows_the_newest_comments(
    run: Run, people: People, browse: Browse
) -> None:
    reviews.comment(request(run).id, "The only one.", by=people.reviewer)
    html = page_of(browse, people.reviewer, run, comments="9")
    assert "The only one." in html
    assert 'data-comments="1"' in html
    assert "Later comments" not in html
    assert "Earlier comments" not in html


def test_comments_cost_the_page_no_query_however_many_there_are(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    address = reverse("review", args=[run.id])
    client.get(address)
    counts = []
    for _ in range(3):
        with CaptureQueriesContext(connection) as captured:
            client.get(address)
        counts.append(len(captured))
        for number in range(20):
            reviews.comment(request(run).id, f"Number {number}.", by=people.starter)
    assert counts[0] == counts[1] == counts[2]


def test_the_receipt_shows_what_was_said_to_who_sees_the_run(
    run: Run, people: People, browse: Browse
) -> None:
    reviews.comment(request(run).id, "Seen with Marta.", by=people.starter)
    sign(run, people.reviewer, ["approve"] * len(pending(run)))
    address = reverse("receipt", args=[Receipt.objects.get().id])
    html = browse(people.reviewer).get(address).content.decode()
    assert "Seen with Marta." in html
    assert "not part of what was signed" in html
    people.reviewer.groups.clear()
    people.reviewer.user_permissions.clear()
    people.reviewer.username = "rea"
    people.reviewer.save()
    html = browse(people.reviewer).get(address).content.decode()
    assert "Seen with Marta." not in html


def test_the_line_of_the_audit_log_shows_the_text(
    run: Run, people: People, browse: Browse
) -> None:
    reviews.comment(request(run).id, "Seen with Marta.", by=people.starter)
    listed = browse(people.auditor).get(reverse("audit")).content.decode()
    assert "commented on a review" in listed
    assert "Seen with Marta." in listed
