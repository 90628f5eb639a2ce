"""The verdicts of decisions, and the names under which the system signs."""

BY_DEADLINE = "the deadline"
"""The name under which decisions of a deadline stand. An account of that name signs with
a receipt, which a deadline has not.
"""
BY_VETO = "the veto"
"""The name under which the answers of a gate's veto stand."""
VETO = "veto"
NO_VETO = "no_veto"
VETO_ANSWERS = (VETO, NO_VETO)
"""The verdicts of a veto: what would be approved stays open, or may be approved."""
BY_POLICY = "the policy of"
"""The beginning of the name under which a gate's automatic policy signs, before the name
of the gate's node.
"""
BY_STANDING = "policy"
"""The beginning of the name under which a standing policy signs, before its number. Its
maker stands beside it, as the person whose right it uses.
"""
NO_STANDING = "standing policies"
"""The name of an answer that no standing policy signs."""
NO_AUTO = "no_auto"
"""The answer of an automatic policy that does not sign, and that no standing policy does."""
ANSWERS = (*VETO_ANSWERS, NO_AUTO)
"""The verdicts that count for nobody."""
VERDICTS = ("approve", "reject", "edit", "skip", "not_needed", *ANSWERS)
