"""The bodies of going back in time: what each takes, what it is without it, and what it
refuses by name.
"""

from typing import Any

import pytest
from rest_framework.exceptions import ValidationError

from approvals.api.base import Body, read_body
from orchestrator.api.travel_body import MOST_NAMED, BulkForkBody, HowBody
from orchestrator.api.verbs import body_of
from orchestrator.runs import verb_table
from orchestrator.runs.verb_table import LONGEST_REASON

ForkBody = body_of(verb_table.FORK)
ReplayBody = body_of(verb_table.REPLAY)
ResumeBody = body_of(verb_table.RESUME)
RewindBody = body_of(verb_table.REWIND)
REWIND = {"checkpoint": "C:step-1", "reason": "r"}


def test_a_body_without_anything_asks_for_nothing_special() -> None:
    assert read_body(HowBody, {}) == {
        "how": "fork",
        "patch": None,
        "answers": None,
        "allow_effects": [],
    }
    assert read_body(ForkBody, {}) == {
        "patch": None,
        "answers": None,
        "allow_effects": [],
        "start": True,
        "key": None,
        "reason": "",
    }
    assert read_body(ResumeBody, {}) == {
        "patch": None,
        "allow_effects": [],
        "reason": "",
    }
    assert read_body(ReplayBody, {}) == {"reason": ""}
    assert read_body(BulkForkBody, {})["status"] == "failed"


@pytest.mark.parametrize("body", [HowBody, ForkBody, ResumeBody, BulkForkBody])
def test_a_patch_is_an_object_or_null(body: type[Body]) -> None:
    for patch in ({"scratch": {}}, {"scratch": []}, {}, None):
        assert read_body(body, {"patch": patch})["patch"] == patch
    for wrong in ([], "x", 5, True, False, 0, ""):
        with pytest.raises(ValidationError, match="patch"):
            read_body(body, {"patch": wrong})


@pytest.mark.parametrize(
    ("body", "content", "name"),
    [
        (HowBody, {"how": "sideways"}, "how"),
        (HowBody, {"allow_effects": [["pay"]]}, "allow_effects"),
        (HowBody, {"key": "a"}, "key"),
        (ForkBody, {"how": "fork"}, "how"),
        (ForkBody, {"start": "perhaps"}, "start"),
        (ForkBody, {"key": "x" * 201}, "key"),
        (ForkBody, {"reason": "x" * (LONGEST_REASON + 1)}, "reason"),
        (ReplayBody, {"patch": {}}, "patch"),
        (ResumeBody, {"answers": {}}, "answers"),
        (RewindBody, {"reason": "r"}, "checkpoint"),
        (RewindBody, {"checkpoint": "C:step-1"}, "reason"),
        (RewindBody, {**REWIND, "reason": ""}, "reason"),
        (BulkForkBody, {"checkpoints": ["C:step-1"] * (MOST_NAMED + 1)}, "checkpoints"),
        (BulkForkBody, {"answers": {}}, "answers"),
    ],
)
def test_what_a_body_does_not_take_is_named(
    body: type[Body], content: dict[str, Any], name: str
) -> None:
    with pytest.raises(ValidationError, match=name):
        read_body(body, content)
