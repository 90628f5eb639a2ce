"""Countersign as a contender where a page is looked at: W10. Views are called in this
process, without a server.
"""

import time
from typing import Any

from django.contrib.auth import get_user_model
from django.test import RequestFactory
from django.urls import reverse

from approvals.views.review import review_page
from orchestrator import runs


def w10_start(shape: str) -> dict[str, Any]:
    """Return a run that waits for the decision on a value of that shape."""
    get_user_model().objects.get_or_create(username="reviewer")
    run = runs.advance(runs.start("bench_w10", {"shape": shape}).id)
    assert run.status == "paused", (run.status, run.error_code)
    return {"run": str(run.id)}


def w10_view(run: str) -> dict[str, Any]:
    """Return the milliseconds of CPU that one view of its review takes, and the bytes
    of the page.
    """
    request = RequestFactory().get(reverse("review", args=[run]))
    request.user = get_user_model().objects.get(username="reviewer")
    begun = time.process_time()
    answer = review_page(request, run)
    took = time.process_time() - begun
    assert answer.status_code == 200
    assert b"Decision for write 1" in answer.content, (
        "the page does not ask for the decision"
    )
    return {"cpu_ms": 1000 * took, "page_bytes": len(answer.content)}
