"""What runs are called on pages: by label and key, so that two runs of one label can be
told apart.
"""

import pytest
from django.template import engines

from checkpoints.models import Run
from orchestrator.display.run_names import run_name


@pytest.mark.parametrize(
    ("label", "key", "name"),
    [
        ("Claim CLM-7, fork", "CLM-7-fork-2", "Claim CLM-7, fork · CLM-7-fork-2"),
        ("", "CLM-7", "CLM-7"),
        ("claim_payout · CLM-7", "CLM-7", "claim_payout · CLM-7"),
        ("Claim CLM-71", "CLM-7", "Claim CLM-71 · CLM-7"),
        ("Claim CLM-7, fork", "CLM-7", "Claim CLM-7, fork"),
    ],
)
def test_a_run_is_called_by_label_and_key_unless_the_label_says_the_key(
    label: str, key: str, name: str
) -> None:
    assert run_name(Run(label=label, key=key)) == name


def test_the_fragment_shows_both_and_marks_what_cannot_be_seen() -> None:
    source = '{% include "orchestrator/_run_name.html" with run=run only %}'
    html = (
        engines["django"]
        .from_string(source)
        .render({"run": Run(label="Claim\u200b <b>", key="CLM-7")})
    )
    assert "&lt;b&gt;" in html
    assert "\u200b" not in html
    assert '<code class="key">CLM-7</code>' in html


def test_the_fragment_says_a_key_once() -> None:
    source = '{% include "orchestrator/_run_name.html" with run=run only %}'
    html = (
        engines["django"]
        .from_string(source)
        .render({"run": Run(label="Claim CLM-7", key="CLM-7")})
    )
    assert html.count("CLM-7") == 1
