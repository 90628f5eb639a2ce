"""What a patch changes, and where a word stands in a state."""

from orchestrator.views.go_on.patch_lines import MOST_HITS, MOST_LINES, hits, patch_lines
from tests.support.patch_points import point


def test_each_value_that_changes_is_a_line_with_the_old_one_before_it() -> None:
    there = point(notes=["a"], payout={"amount": "1", "account": "DE1", "paid": False})
    patch = {"scratch": {"notes": ["a", "b"], "payout": {"account": "DE2"}}, "artifacts": {"letter": "dear"}}
    assert [(one.path, one.before, one.after) for one in patch_lines(there, patch)] == [
        ("scratch.notes[1]", None, "b"),
        ("scratch.payout.account", "DE1", "DE2"),
        ("artifacts.letter", "empty text", "dear"),
    ]
    assert patch_lines(there, {}) == []


def test_money_reads_as_its_type_declares_it_and_quotes_stand_only_where_two_values_could_be_mistaken() -> None:
    there = point(payout={"amount": "4512.50", "account": "DE1", "paid": False}, anything={"a": 1, "b": "x"}, text="y")
    patch = {"scratch": {"payout": {"amount": "12512.50", "account": "12"}, "anything": {"a": "1", "b": " x"}}}
    assert [(one.before, one.after) for one in patch_lines(there, patch)] == [
        ("1", '"1"'),
        ("x", '" x"'),
        ("DE1", '"12"'),
        ("4,512.50", "12,512.50"),
    ]


def test_two_values_that_differ_never_read_the_same() -> None:
    there = point(anything={"a": None, "b": "not set"}, maybe=3)
    patch = {"scratch": [{"op": "replace", "path": "/anything", "value": {"a": "not set", "b": None}}]}
    for one in patch_lines(there, patch):
        assert one.before != one.after


def test_no_more_lines_and_hits_are_made_than_are_shown() -> None:
    many = {"scratch": {"notes": [str(n) for n in range(5000)]}}
    assert len(patch_lines(point(), many)) == MOST_LINES + 1
    assert len(hits(point(notes=["same"] * 5000).going_on, "same")) == MOST_HITS + 1


def test_a_word_is_found_in_keys_and_values_in_any_case() -> None:
    state = point(anything={"Account": [{"iban": "DE89"}], "empty": {}}, text="one\ntwo").going_on
    iban = "scratch.anything.Account[0].iban"
    assert [(one.path, one.channel) for one in hits(state, "de89")] == [(iban, "anything")]
    assert [one.path for one in hits(state, "account")] == [iban]
    assert [one.path for one in hits(state, "empty")] == ["scratch.anything.empty"]
    assert [one.path for one in hits(state, "E\nTWO")] == ["scratch.text"]
    assert hits(state, "  ") == []
    deep = point(anything={"a": []}).going_on
    at = deep["scratch"]["anything"]
    for _ in range(5000):
        at["a"] = {"a": []}
        at = at["a"]
    assert len(hits(deep, "a")) >= 1
