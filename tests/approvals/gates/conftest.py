"""Who looks at the pages: see `tests.support.page_people`."""

from tests.support.page_people import browse  # noqa: F401
