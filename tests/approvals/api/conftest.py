"""Who calls the API: see `tests.support.api_people`."""

from tests.support.api_people import (
    api_graphs_are_registered,
    nobody,
    olive,
    paused,
    rita,
)
