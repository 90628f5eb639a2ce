"""Search finds by words, the same on every database, whatever is typed."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from checkpoints import retention
from checkpoints.db.free_pages import wipe_free_pages
from checkpoints.memory import search
from checkpoints.memory.shelf import DatabaseShelf, delete_trace
from checkpoints.models import MemoryTrace
from checkpoints.sealing.sealed_rows import Protection
from tests.support import cast, dump
from tests.support.memory_graphs import chain, forget, gone, remember

pytestmark = pytest.mark.django_db(transaction=True)


def keys_of(text: str, namespace: str = "facts", limit: int = 10) -> list[str]:
    """The keys that a search finds, in order."""
    return [
        trace.key
        for trace in DatabaseShelf(Protection()).search(text, namespace, limit).traces
    ]


def seeded(contents: dict[str, Any], namespace: str = "facts") -> None:
    """One run that remembers all of them."""

    def put(state: Any, ctx: Any) -> None:
        for key, content in contents.items():
            ctx.memory.put(key, content, namespace)

    gone(chain("seed", put))


def test_a_search_finds_any_of_the_words_in_key_and_content_and_ranks_by_how_many() -> (
    None
):
    seeded(
        {
            "one": "A late parcel",
            "two": {"text": ["late", 7]},
            "three": "on time",
            "parcel": "late and wet",
        }
    )
    assert keys_of("late parcel") == ["one", "parcel", "two"]
    assert keys_of("7") == ["two"]
    assert keys_of("Parcel!", limit=1) == ["one"]
    assert keys_of("nothing of it") == []


def test_equal_matches_are_ordered_by_strength_then_by_age() -> None:
    remember("old", "late", strength=1)
    remember("new", "late", strength=1)
    remember("strong", "late", strength=2)
    remember("weak", "late", strength=0)
    assert keys_of("late") == ["strong", "new", "old", "weak"]


def test_namespaces_are_apart() -> None:
    seeded({"a": "late"})
    seeded({"b": "late"}, "others")
    assert keys_of("late") == ["a"]
    assert keys_of("late", "others") == ["b"]
    assert keys_of("late", "none") == []


def test_case_accents_and_scripts() -> None:
    seeded({"a": "Größe ÉTÉ", "b": "привет МИР", "c": "東京 タワー", "d": "٣ naïve"})
    assert [keys_of(text) for text in ("GROSSE", "ete", "мир", "東京", "naive")] == [
        ["a"],
        ["a"],
        ["b"],
        ["c"],
        ["d"],
    ]


@pytest.mark.parametrize(
    "odd",
    [
        "",
        " ",
        "\t\n",
        '"',
        "'",
        "''",
        '"late',
        "late*",
        "late OR",
        "OR",
        "NOT late",
        "NEAR(late parcel)",
        "text:late",
        "^late",
        "late AND (parcel",
        "a-b",
        "late & | !",
        "<->",
        ":*",
        "'); DROP TABLE x; --",
        "%s %(x)s {table}",
        "\\",
        "💥",
        "\ud800",
        "\x00",
        "late\x00parcel",
        "late " * 5000,
        "x" * 100_000,
        "*",
        "-",
        "+late",
        "late:A",
    ],
)
def test_no_query_breaks_it(odd: str) -> None:
    seeded({"row": "late parcel"})
    assert keys_of(odd) == (["row"] if "late" in odd.casefold() else [])


def test_a_text_without_words_finds_nothing() -> None:
    seeded({"a": "late"})
    assert [keys_of(text) for text in ("", "?!", "💥")] == [[], [], []]


def test_what_was_overwritten_or_forgotten_is_not_found() -> None:
    remember("a", "late")
    remember("a", "early")
    remember("b", "late")
    forget("b")
    assert keys_of("late") == []
    assert keys_of("early") == ["a"]


def test_very_long_contents_can_be_remembered_and_found_by_their_beginning() -> None:
    seeded(
        {
            "a": "first " + "word" * 50_000 + " last",
            "b": " ".join(f"w{n}" for n in range(60_000)),
        }
    )
    assert keys_of("first") == ["a"]
    assert keys_of("w3") == ["b"]
    assert keys_of("last") == []


def test_more_than_the_limit_are_ranked_by_the_best_of_them() -> None:
    seeded({f"k{n:03}": "late " + "parcel " * (n % 2) for n in range(120)})
    assert len(keys_of("late parcel", limit=60)) == 60
    assert keys_of("late parcel", limit=3) == ["k001", "k003", "k005"]


def test_the_index_is_installed_by_every_migrate_and_keeps_in_step() -> None:
    seeded({"a": "late"})
    call_command("migrate", verbosity=0)
    assert search.check_index(None, ["default"]) == []
    assert keys_of("late") == ["a"]
    MemoryTrace.objects.all().delete()
    assert keys_of("late") == []


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="only SQLite keeps its index by triggers"
)
def test_an_index_whose_triggers_were_dropped_is_whole_again_after_a_migrate() -> None:
    with connection.cursor() as cursor:
        for act in ("insert", "delete", "update"):
            cursor.execute(f"DROP TRIGGER {search.INDEX}_{act}")
    seeded({"a": "late"})
    assert keys_of("late") == []
    (warned, *_) = search.check_index(None, ["default"])
    assert warned.id == "checkpoints.W001"
    assert warned.hint == "run manage.py migrate"
    search.install_index()
    assert search.check_index(None, ["default"]) == []
    assert keys_of("late") == ["a"]
    remember("b", "late")
    assert set(keys_of("late")) == {"a", "b"}


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="asks PostgreSQL's planner"
)
def test_a_search_uses_the_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        matches = "to_tsvector('simple', text) @@ to_tsquery('simple', 'late')"
        cursor.execute(
            f"EXPLAIN SELECT id FROM checkpoints_memorytrace WHERE {matches}"
        )  # noqa: S608
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert search.INDEX in plan


RARE = "zyxwvquokka"
"""A word that stands nowhere else. The index writes words that follow one another
without what they have in common.
"""


def times_kept(word: str) -> int:
    """Return how often the database holds a word, or its end."""
    return dump.of_database().count(word[2:].encode())


@pytest.mark.parametrize("paths", [None, ["notes"]])
def test_when_an_erasure_ends_no_word_of_erased_memory_stands_in_the_file(
    people: cast.People, paths: list[str] | None
) -> None:
    def put(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.memory.put("ada", RARE, "facts")
        return {"notes": [RARE]}

    run = gone(chain("remembers", put))
    remember("other", "stays")
    assert times_kept(RARE)
    retention.erase(run.id, paths, by=people.steward)
    assert times_kept(RARE) == 0
    assert keys_of("stays") == ["other"]


@pytest.mark.skipif(
    connection.vendor != "sqlite",
    reason="only SQLite keeps words in a table of their own",
)
def test_words_that_were_overwritten_or_forgotten_go_from_the_index_and_the_others_stay(
    people: cast.People,
) -> None:
    kept = [f"{number}staysword" for number in range(20)]
    for number, word in enumerate(kept):
        remember(f"key {number}", f"{RARE}{number}")
        remember(f"key {number}", word)
    remember("forgotten", f"{RARE}forgotten")
    delete_trace(MemoryTrace.objects.get(key="forgotten"), by=people.steward)
    search.drop_removed_words()
    wipe_free_pages()
    assert indexed(RARE) == 0
    assert [keys_of(word) for word in kept] == [
        [f"key {number}"] for number in range(20)
    ]


def indexed(word: str) -> int:
    """Return how often the blocks of the index hold a word, or its end."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT block FROM {search.INDEX}_data")
        return sum(
            bytes(block).count(word[2:].encode()) for (block,) in cursor.fetchall()
        )


@pytest.mark.skipif(
    connection.vendor != "sqlite",
    reason="only SQLite keeps words in a table of their own",
)
def test_where_there_is_no_index_there_is_nothing_to_drop() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {search.INDEX}")
    search.drop_removed_words()
    assert search.INDEX not in connection.introspection.table_names(), "nor is one made"
    search.install_index()
