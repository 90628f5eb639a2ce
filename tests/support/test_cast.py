"""The cast of the tests has the rights that its roles say, so that tests about rights
test something.
"""

from tests.support.cast import People


def test_each_role_has_its_own_right_and_nobody_has_none(people: People) -> None:
    rights = {
        people.starter: "checkpoints.start_run",
        people.reviewer: "approvals.decide",
        people.second_reviewer: "approvals.decide",
        people.steward: "checkpoints.manage_retention",
        people.auditor: "checkpoints.export_run",
    }
    for user, right in rights.items():
        assert user.has_perm(right), user
    assert people.nobody.get_all_permissions() == set()


def test_only_the_one_who_starts_may_start(people: People) -> None:
    assert people.starter.has_perm("checkpoints.start_run")
    assert not people.reviewer.has_perm("checkpoints.start_run")
    assert not people.auditor.has_perm("checkpoints.start_run")
