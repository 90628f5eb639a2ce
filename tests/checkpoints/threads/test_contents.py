"""The document of a row holds the points of several namespaces, and may lose some."""

from checkpoints.threads.contents import (
    NewThreadState,
    ThreadBlob,
    document_after,
    empty_payload,
    payload_with,
    point_from,
    point_of,
)


def _draft(namespace: str, id_: str) -> NewThreadState:
    def value_of(channel: str) -> ThreadBlob:
        return ThreadBlob(1, ("raw", id_.encode()), id_)

    return NewThreadState(
        namespace,
        id_,
        None,
        ("raw", b""),
        ("raw", b""),
        {"text": 1},
        frozenset({"text"}),
        value_of,
    )


def test_what_is_kept_of_a_document_holds_no_value_of_the_other_points() -> None:
    outer = document_after(
        empty_payload().document(), point_from(_draft("", "outer-1"), None), 1
    )
    document = document_after(
        outer.document(), point_from(_draft("child:1", "inner-1"), None), 2
    ).document()
    kept = payload_with(document, {("child:1", "inner-1")}).document()
    assert kept["scratch"] == {"child:1:text": "inner-1"}
    assert kept["versions"].keys() == {"child:1:text"}
    assert point_of(kept, "") is None
    inner = point_of(kept, "child:1")
    assert inner is not None
    assert inner.blobs["text"].shown == "inner-1"


def test_a_document_of_which_nothing_is_kept_is_that_before_any_work() -> None:
    document = document_after(
        empty_payload().document(), point_from(_draft("", "outer-1"), None), 1
    ).document()
    assert payload_with(document, ()) == empty_payload()
    # Another checkpoint of that namespace is no reason to keep it.
    assert payload_with(document, {("", "outer-2")}) == empty_payload()
