"""The page about the API names every address, every code, every scope."""

import inspect

import pytest
from django.urls import URLPattern

from orchestrator import tokens, urls_api
from orchestrator.api import problems
from orchestrator.engine import errors
from tests.house.commands import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()
ADDRESSES = [
    str(p.pattern)
    .replace("<str:", "{")
    .replace("<uuid:", "{")
    .replace("<int:", "{")
    .replace(">", "}")
    for p in urls_api.v1
    if isinstance(p, URLPattern) and p.name
]
CODES = sorted(
    kind.code_of_class
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors._Named) and kind is not errors._Named
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_address_is_documented(address: str) -> None:
    assert f"`{address}`" in PAGE


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_documented_beside_its_status(code: str) -> None:
    kind = next(
        k for k in vars(errors).values() if getattr(k, "code_of_class", "") == code
    )
    row = next(
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and f"`{code}`" in line
    )
    assert str(problems.status_of(kind)) in row.split("|")[1]


def test_every_scope_is_documented() -> None:
    assert all(f"| `{scope}` |" in PAGE for scope in tokens.SCOPES)
