"""What axe finds wrong with a page, and whether it scrolls sideways."""

from typing import Any

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(page: Any) -> list[str]:
    """Each broken rule with the element that breaks it."""
    from axe_playwright_python.sync_playwright import Axe

    broken_rules = (
        Axe()
        .run(page, options={"runOnly": {"type": "tag", "values": RULES}})
        .response["violations"]
    )
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in broken_rules
        for node in rule["nodes"]
    ]


def sideways(page: Any, width: int) -> list[str]:
    """Say so where the page is wider than its window."""
    wide = page.evaluate("document.documentElement.scrollWidth") > width
    return ["the page scrolls sideways"] if wide else []
