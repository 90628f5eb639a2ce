"""A line of the audit log opens to what stands behind it, for who may see the run, and
for nobody else.
"""

from collections.abc import Callable

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from approvals.models import Decision
from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine, Run
from orchestrator import runs
from tests.support.cast import People
from tests.support.forging import tamper
from tests.support.rows import a_run
from tests.support.run_actions import pending, sign

Browse = Callable[[User], Client]


def opened(client: Client, line: AuditLine, **options: str) -> str:
    answer = client.get(reverse("audit_line", args=[line.id]), options)
    assert answer.status_code == 200
    return str(answer.content.decode()).replace("<bdi>", "").replace("</bdi>", "")


def test_a_line_opens_to_the_old_the_proposed_and_the_final_value_and_the_seal(
    run: Run, people: People, browse: Browse
) -> None:
    rows = pending(run)
    edit = ("edit", {"amount": "9.75", "account": "DE89370400440532013000"})
    sign(
        run,
        people.reviewer,
        [edit if row.channel == "payout" else "approve" for row in rows],
    )
    html = opened(browse(people.auditor), AuditLine.objects.get(kind="signed"))
    made = Decision.objects.get(channel="payout")
    assert "Before" in html
    assert "12.50" in html
    assert "9.75" in html
    assert made.seen_hash in html
    assert bytes(made.seal or b"").hex() in html


def test_another_act_opens_to_what_the_log_of_the_run_says(
    people: People, browse: Browse
) -> None:
    run = a_run(key="CLM-2")
    runs.cancel(run.id, by=people.starter, reason="the holder withdrew it")
    html = opened(browse(people.auditor), AuditLine.objects.get(kind="cancelled"))
    assert "the holder withdrew it" in html


def test_values_are_for_who_may_see_the_run(
    run: Run, people: People, browse: Browse
) -> None:
    sign(run, people.reviewer, ["approve"] * len(pending(run)))
    line = AuditLine.objects.get(kind="signed")
    opened(browse(people.reviewer), line)
    opened(browse(people.starter), line)
    people.nobody.user_permissions.add(Permission.objects.get(codename="view_audit"))
    for user in (people.nobody, people.second_reviewer):
        assert (
            browse(user).get(reverse("audit_line", args=[line.id])).status_code == 404
        )
    for number in (0, line.id + 1000, 2**63, 10**30):
        assert browse(people.auditor).get(f"/audit/{number}/").status_code == 404


def test_a_decision_and_a_line_that_are_not_as_they_were_sealed_say_so(
    run: Run, people: People, browse: Browse
) -> None:
    sign(run, people.reviewer, ["approve"] * len(pending(run)))
    line = AuditLine.objects.get(kind="signed")
    client = browse(people.auditor)
    assert "tampered" not in opened(client, line)
    tamper(line, kind="signed", actor_name="somebody")
    assert opened(client, line).count('data-test="tampered"') == 1


def test_many_decisions_stand_on_several_pages(
    run: Run, people: People, browse: Browse, monkeypatch: object
) -> None:
    from approvals.views.audit import line as page

    monkeypatch.setattr(page, "SHOWN", 1)  # type: ignore[attr-defined]
    sign(run, people.reviewer, ["approve"] * (count := len(pending(run))))
    line = AuditLine.objects.get(kind="signed")
    counts = [
        opened(browse(people.auditor), line, page=str(n)).count('data-test="decision"')
        for n in range(1, count + 2)
    ]
    assert counts == [1] * count + [0]


def test_a_line_about_no_run_opens_to_its_facts(people: People, browse: Browse) -> None:
    line = audit_log.record(
        "keys_rotated", actor=people.steward, key="k2", rows={"checkpoints_run": 3}
    )
    assert "k2" in opened(browse(people.auditor), line)
