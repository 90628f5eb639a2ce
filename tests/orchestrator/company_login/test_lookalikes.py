"""A name of other scripts that looks like another name is not taken for it."""

import pytest

from orchestrator.company_login import lookalikes


@pytest.mark.parametrize(
    ("name", "distinct"),
    [
        ("\u0430dmin", "admin"),
        ("adm\u0131n", "admin"),
        ("\u0251dmin", "admin"),
        ("\u0440\u043e\u0441\u0430", "poca"),
        ("\u0430dmin\u00e9", ""),
        ("ros\u0430_\u0438", ""),
        ("ro\u0661", ""),
        ("\u0438\u0432\u0430\u043d", "\u0438\u0432\u0430\u043d"),
        ("ren\u00e9", "ren\u00e9"),
        ("\u7530\u4e2d", "\u7530\u4e2d"),
    ],
)
def test_a_name_is_of_one_script_and_looks_like_no_other(
    name: str, distinct: str
) -> None:
    assert lookalikes.distinct(name) == distinct


def test_a_letter_that_looks_like_a_sign_stays() -> None:
    assert lookalikes.distinct("\u01c3") == "\u01c3"
