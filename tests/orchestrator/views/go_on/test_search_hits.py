"""Where a word stands in a state."""

from orchestrator.views.go_on.search_hits import MOST_HITS, search_hits
from tests.support.patch_points import point


def test_no_more_hits_are_made_than_are_shown() -> None:
    state = point(notes=["same"] * 5000).going_on
    assert len(search_hits(state, "same")) == MOST_HITS + 1


def test_a_word_is_found_in_keys_and_values_in_any_case() -> None:
    state = point(
        anything={"Account": [{"iban": "DE89"}], "empty": {}}, text="one\ntwo"
    ).going_on
    iban = "scratch.anything.Account[0].iban"
    assert [(hit.path, hit.channel) for hit in search_hits(state, "de89")] == [
        (iban, "anything")
    ]
    assert [hit.path for hit in search_hits(state, "account")] == [iban]
    assert [hit.path for hit in search_hits(state, "empty")] == [
        "scratch.anything.empty"
    ]
    assert [hit.path for hit in search_hits(state, "E\nTWO")] == ["scratch.text"]
    assert search_hits(state, "  ") == []
    deep = point(anything={"a": []}).going_on
    at = deep["scratch"]["anything"]
    for _ in range(5000):
        at["a"] = {"a": []}
        at = at["a"]
    assert len(search_hits(deep, "a")) >= 1
