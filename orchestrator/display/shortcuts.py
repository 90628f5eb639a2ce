"""The keyboard shortcuts of the pages, for the list that `?` opens. Pure."""

Shortcut = tuple[tuple[str, ...], str]
"""The keys, and their action in words."""

EVERYWHERE: tuple[Shortcut, ...] = (
    (("/",), "find a run"),
    (("?",), "these keys"),
    (("G", "R"), "go to the runs"),
    (("G", "V"), "go to the reviews"),
    (("G", "G"), "go to the graphs"),
    (("G", "A"), "go to the audit log"),
)
OF_PAGE: dict[str, tuple[Shortcut, ...]] = {
    "run": (
        (("←", "→"), "previous, next checkpoint"),
        (("Shift ←", "Shift →"), "10 checkpoints back, on"),
        (("PgUp", "PgDn"), "100 checkpoints back, on"),
        (("Home", "End"), "first, latest checkpoint"),
        (("[", "]"), "previous, next change of the watched path"),
        (("L",), "back to now"),
        (("F",), "go on from this checkpoint"),
        (("O",), "type the number of a checkpoint"),
        (("1", "… 6"), "open a tab"),
    ),
    "runs": (
        (("J", "K"), "next, previous run"),
        (("↵",), "open it"),
        (("X",), "select it"),
    ),
    "inbox": (
        (("J", "K"), "next, previous review"),
        (("↵",), "open it"),
        (("T",), "take it, or give it back"),
        (("H",), "hand it over, once you have taken it"),
    ),
    "receipt": ((("N",), "next review"),),
    "review": (
        (("J", "K"), "next, previous write"),
        (("N",), "next undecided write"),
        (("A", "E", "R"), "choose approve, edit, reject: a draft only"),
        (("S",), "choose skip, where the gate allows it"),
        (("C",), "comment"),
        (("Z",), "undo the last choice"),
        (("V",), "raw JSON"),
        (("Ctrl ↵",), "sign, once everything is decided"),
        (("Esc",), "close the editor"),
    ),
    "compare": (
        (("N", "P"), "next, previous difference"),
        (("S",), "swap A and B"),
    ),
}
"""The name of a page's address -> its own keys, in the order in which they are listed.
"""


def shortcuts_of(page: str) -> tuple[Shortcut, ...]:
    """Return the keys of one page, its own first."""
    return OF_PAGE.get(page, ()) + EVERYWHERE
