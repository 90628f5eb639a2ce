"""Cells: what is right as it stands, and what was probably meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.demo.imports import kinds
from orchestrator.demo.imports.kinds import Kind

KINDS: tuple[Kind, ...] = ("text", "email", "number", "date", "country")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", "a.b+c@mail.example.com"),
        ("email", "JOHN@Example.ORG"),
        ("number", "0"),
        ("number", "-12.5"),
        ("date", "2024-02-29"),
        ("country", "DE"),
        ("text", "anything at all"),
    ],
)
def test_what_is_right_is_left_alone(kind: Kind, text: str) -> None:
    assert kinds.problem(kind, text) == ""


@pytest.mark.parametrize(
    ("kind", "text", "meant"),
    [
        ("text", "  Ann ", "Ann"),
        ("email", " ann@example.com", "ann@example.com"),
        ("email", "ann at example.com", "ann@example.com"),
        ("email", "ann@@example.com", "ann@example.com"),
        ("email", "ann@Example,com", "ann@example.com"),
        ("email", "Ann Ek <ann@example.com>", "ann@example.com"),
        ("email", "mailto:ann@example.com", "ann@example.com"),
        ("number", "1.234,50 €", "1234.50"),
        ("number", "1,234.50", "1234.50"),
        ("number", "12,5", "12.5"),
        ("number", "1,234", "1234"),
        ("number", "1.234.567", "1234567"),
        ("number", "(99.00)", "-99.00"),
        ("number", "EUR 10", "10"),
        ("number", "1'000.00", "1000.00"),
        ("date", "31.12.2025", "2025-12-31"),
        ("date", "12/31/2025", "2025-12-31"),
        ("date", "2025-2-3", "2025-02-03"),
        ("date", "3 February 2025", "2025-02-03"),
        ("date", "2025-02-03T10:00:00Z", "2025-02-03"),
        ("country", "de", "DE"),
        ("country", "Germany", "DE"),
        ("country", "UK", "GB"),
    ],
)
def test_what_is_wrong_is_proposed_as_it_was_meant(
    kind: Kind, text: str, meant: str
) -> None:
    assert kinds.problem(kind, text)
    assert kinds.proposal(kind, text) == meant


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", "nobody"),
        ("email", "@example.com"),
        ("number", "to be agreed"),
        ("number", "1.2.3,4,5"),
        ("date", "2026-02-30"),
        ("date", "soon"),
        ("country", "Atlantis"),
        ("country", "XX"),
    ],
)
def test_where_nobody_could_say_there_is_no_proposal(kind: Kind, text: str) -> None:
    assert kinds.problem(kind, text)
    assert kinds.proposal(kind, text) is None


@given(st.sampled_from(KINDS), st.text(max_size=60))
def test_a_proposal_is_always_right_itself(kind: Kind, text: str) -> None:
    meant = kinds.proposal(kind, text)
    assert meant is None or kinds.problem(kind, meant) == ""


def test_a_cell_of_enormous_length_is_wrong() -> None:
    assert "1,000" in kinds.problem("text", "x" * 1001)
