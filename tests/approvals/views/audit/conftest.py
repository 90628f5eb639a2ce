"""Who looks at the pages: see `tests.support.page_people`."""

from tests.support.page_people import browse, claim_graph, run  # noqa: F401
