"""Legal holds and pins in the admin: given, found by the key of their run, released,
and what is refused.
"""

import pytest
from django.test import Client
from django.urls import reverse

from checkpoints import retention
from checkpoints.admin import holds as hold_admin
from checkpoints.models import AuditLine, LegalHold, Pin, Run
from tests.support import cast
from tests.support.histories import long_run
from tests.support.statements import counted
from tests.support.stewards import run, steward, text

__all__ = ["run", "steward"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_holds_and_pins_are_given_and_released_in_the_admin(
    run: Run, steward: Client, people: cast.People
) -> None:
    hold = reverse("admin:checkpoints_legalhold_add")
    pin = reverse("admin:checkpoints_pin_add")
    assert (
        steward.post(hold, {"run": run.key, "reason": "a court asked"}).status_code
        == 302
    )
    assert (
        steward.post(pin, {"checkpoint": f"{run.key}:at-2", "reason": ""}).status_code
        == 302
    )
    assert retention.is_held([run.id]) == {run.id}
    row = LegalHold.objects.get()
    assert row.by == people.steward
    assert row.reason == "a court asked"
    assert Pin.objects.get().by == people.steward
    for bad in (
        {"run": "nobody", "reason": "x"},
        {"run": run.key, "reason": ""},
        {"run": "\x00", "reason": "x"},
    ):
        assert steward.post(hold, bad).status_code == 200
    assert steward.post(pin, {"checkpoint": f"{run.key}:at-99"}).status_code == 200
    assert (
        steward.post(
            reverse("admin:checkpoints_legalhold_change", args=[row.pk]),
            {"reason": "y"},
        ).status_code
        == 403
    )
    for name, pk in (("legalhold", row.pk), ("pin", Pin.objects.get().pk)):
        listed = reverse(f"admin:checkpoints_{name}_changelist")
        assert steward.get(listed).status_code == 200
        chosen = {"action": "release", "_selected_action": [pk]}
        page = text(steward.post(listed, chosen))
        assert "Type their number, 1, to confirm" in page
        assert f'name="_selected_action" value="{pk}"' in page
        for bad in (
            {"typed": "2", "reason": "over"},
            {"typed": "1", "reason": " "},
            {"typed": "x"},
            {},
        ):
            assert (
                steward.post(listed, {**chosen, "confirmed": "yes", **bad}).status_code
                == 422
            )
        assert not AuditLine.objects.filter(
            kind__in=["hold_released", "checkpoint_unpinned"], facts__reason=""
        ).exists()
        statement = {"confirmed": "yes", "typed": "1", "reason": f"{name}: it is over"}
        assert retention.is_held([run.id]) or name == "pin"
        ended = text(steward.post(listed, {**chosen, **statement}, follow=True))
        assert {
            "legalhold": "1 legal hold was released.",
            "pin": "1 checkpoint was unpinned.",
        }[name] in ended
    assert retention.is_held([run.id]) == set()
    assert not Pin.objects.filter(released_at=None).exists()
    ended = AuditLine.objects.filter(
        kind__in=["hold_released", "checkpoint_unpinned"]
    ).order_by("id")
    assert [line.facts["reason"] for line in ended] == [
        "legalhold: it is over",
        "pin: it is over",
    ]


def test_a_hold_on_a_run_that_is_being_erased_is_refused_with_a_sentence(
    run: Run, steward: Client, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention.begin_erasure(run.id, by=people.steward)
    url = reverse("admin:checkpoints_legalhold_add")
    form = {"run": run.key, "reason": "a court asked"}
    page = steward.post(url, form)
    assert page.status_code == 200
    assert f"Values of run {run.key} are being erased since" in text(page)
    assert "a court asked" in text(page)
    # As where it begins between the two looks.
    monkeypatch.setattr(hold_admin, "require_not_being_erased", lambda run: None)
    page = steward.post(url, form, follow=True)
    assert page.status_code == 200
    assert f"values of run {run.key} are being erased since" in text(page).lower()
    assert not LegalHold.objects.exists()


def test_lists_call_rows_by_the_key_of_the_run_find_them_by_it_and_say_which_last(
    run: Run, steward: Client, people: cast.People
) -> None:
    other = long_run("other", "ab")
    for each_run in (run, other):
        retention.hold(each_run.id, f"about {each_run.graph}", by=people.steward)
        retention.pin(
            each_run.head, by=people.steward, reason=f"about {each_run.graph}"
        )
    retention.release_hold(LegalHold.objects.get(run=other.id).pk, by=None)
    retention.unpin(other.head, by=None)
    for name, called in (
        ("legalhold", run.key),
        ("pin", f"{run.key}:at-{run.head_seq}"),
    ):
        listed = reverse(f"admin:checkpoints_{name}_changelist")
        page = text(steward.get(listed))
        assert f">{called}</a>" in page
        for query, seen in (
            (f"q={run.key}", "short"),
            ("state=lasting", "short"),
            ("state=released", "other"),
        ):
            page = text(steward.get(f"{listed}?{query}"))
            assert [word for word in ("short", "other") if f"about {word}" in page] == [
                seen
            ], query
        row = (LegalHold if name == "legalhold" else Pin).objects.get(run=run.id)
        page = text(
            steward.get(reverse(f"admin:checkpoints_{name}_change", args=[row.pk]))
        )
        assert reverse("admin:checkpoints_run_change", args=[run.id]) in page
        assert called in page


def test_a_list_takes_as_many_statements_whatever_stands_on_it(
    run: Run, steward: Client
) -> None:
    listed = reverse("admin:checkpoints_legalhold_changelist")
    taken = []
    for _ in range(2):
        for n in range(5):
            retention.hold(run.id, f"reason {n}", by=None)
        steward.get(listed)
        with counted() as sent:
            steward.get(listed)
        taken.append(len(sent))
    assert taken[0] == taken[1]
