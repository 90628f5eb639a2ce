"""The five effects: what a node does to the world, and therefore what may be repeated
after a crash.
"""

PURE = "pure"
READ = "read"
WRITE = "write"
EXTERNAL = "external"
HUMAN = "human"

EFFECTS = (PURE, READ, WRITE, EXTERNAL, HUMAN)

JOURNALED = frozenset({WRITE, EXTERNAL})
"""Effects whose intent is recorded before and whose result is recorded after."""

WORDS = {
    PURE: "computes; runs again after a crash",
    READ: "looks something up; runs again after a crash and may see newer data",
    WRITE: (
        "changes our data; its recorded result is used, it is never run again by itself"
    ),
    EXTERNAL: (
        "acts outside; its recorded result is used, it is never run again by itself"
    ),
    HUMAN: (
        "proposes, and people decide; what they decided is used, "
        "they are never asked again"
    ),
}

APPROVED = "approved"
REJECTED = "rejected"
PARTIAL = "partial"
ERROR = "error"

SKIPPED = "skipped"
"""Where people decided that a call is not made, and that the way goes on as approved. No
edge names it.
"""

DIVERGED = "diverged"
"""The outcome of a branch of a replay for which nothing was recorded. No edge names
it.
"""

OUTCOMES = (APPROVED, REJECTED, PARTIAL, ERROR)
"""The outcomes that an edge's `when=` may name."""
