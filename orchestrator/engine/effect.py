"""The five effects: what a node does to the world, and therefore what may be done again after a crash."""

PURE, READ, WRITE, EXTERNAL, HUMAN = "pure", "read", "write", "external", "human"

EFFECTS = (PURE, READ, WRITE, EXTERNAL, HUMAN)

JOURNALED = frozenset({WRITE, EXTERNAL})
"""Effects whose intent is recorded before and whose result is recorded after."""

WORDS = {
    PURE: "computes; runs again after a crash",
    READ: "looks something up; runs again after a crash and may see newer data",
    WRITE: "changes our data; its recorded result is used, it is never run again by itself",
    EXTERNAL: "acts outside; its recorded result is used, it is never run again by itself",
    HUMAN: "proposes, and people decide; what they decided is used, they are never asked again",
}

APPROVED, REJECTED, PARTIAL, ERROR = "approved", "rejected", "partial", "error"

DIVERGED = "diverged"
"""How a branch of a replay ends for which nothing was recorded. No edge names it."""

OUTCOMES = (APPROVED, REJECTED, PARTIAL, ERROR)
"""What an edge's `when=` may name."""
