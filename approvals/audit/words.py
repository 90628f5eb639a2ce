"""The words of the audit log: the sentence for each line, as pages, the API and exports
show it. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from checkpoints.core.plural import counted

Facts = Mapping[str, Any]
Words = Callable[[Facts], str]

VERDICTS = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
    "skip": "skipped",
    "not_needed": "not needed",
    "veto": "kept open",
    "no_veto": "let through",
    "no_auto": "left to people",
}
ACCOUNT = "user:"
"""Precedes the name of an account, where facts name people, groups and permissions."""
_NAMING = ("subject", "added", "removed")
_HAPPENED = {True: "it happened", False: "it did not happen"}
_RIGHTS = {
    "start_run": "start runs",
    "steer_run": "steer runs",
    "settle_task": "settle unknown outcomes",
    "view_run": "see all runs",
    "export_run": "export",
    "import_run": "take in bundles",
    "manage_retention": "manage retention",
    "reassign": "hand reviews to other people",
    "manage_webhooks": "manage webhooks",
}
_FLAGS = {"is_active": "active", "is_staff": "staff", "is_superuser": "superuser"}
_SORTS = {
    "signing": "signing key",
    "encryption": "encryption key",
    "trusted": "trusted key",
}
_MAKES = {"signing": "seals", "encryption": "encrypts"}


# Parts of sentences.


def _always(sentence: str) -> Words:
    """Return the words of a kind whose lines all read alike."""

    def words(facts: Facts) -> str:
        return sentence

    return words


def _name_in(name: str) -> str:
    """Return a name such as `group:office` without the sort of thing that it names."""
    return name.partition(":")[2] or name


def _name_of_holder(name: str) -> str:
    """Return the same, with "the group" before the name of a group."""
    if name.startswith("group:"):
        return f"the group {_name_in(name)}"
    return _name_in(name)


def _subject(facts: Facts) -> str:
    return str(facts.get("subject", "")).partition(":")[2]


def _code(facts: Facts) -> str:
    return str(facts.get("code", "")).replace("_", " ")


def _checkpoint(facts: Facts) -> str:
    if "checkpoint" in facts:
        return f"checkpoint {facts['checkpoint']}"
    return "a checkpoint"


def _login(facts: Facts) -> str:
    name = facts.get("name")
    address = facts.get("address")
    as_name = f" as {name}" if name else ""
    from_address = f" from {address}" if address else ""
    return as_name + from_address


# Acts on runs.


def _signed(facts: Facts) -> str:
    verdicts = facts.get("verdicts", {})
    signed = f"signed {counted(sum(verdicts.values()), 'decision')}"
    delegators = facts.get("delegators")
    if delegators:
        signed += f" for {' and '.join(delegators)}"
    names = [name for name in VERDICTS if verdicts.get(name)]
    if not names:
        return signed
    # A single verdict has the count of all decisions.
    if len(names) == 1:
        return f"{signed}, {VERDICTS[names[0]]}"
    counts = [f"{verdicts[name]} {VERDICTS[name]}" for name in names]
    return f"{signed}: {', '.join(counts)}"


def _not_needed(facts: Facts) -> str:
    count = sum(facts.get("verdicts", {}).values())
    return f"decided that {counted(count, 'write')} needed no approval"


def _veto_asked(facts: Facts) -> str:
    verdicts = facts.get("verdicts", {})
    open_count = verdicts.get("veto", 0)
    let_pass = verdicts.get("no_veto", 0)
    if open_count and let_pass:
        return (
            f"the gate's veto kept {counted(open_count, 'write')} open "
            f"and let {let_pass:,} through"
        )
    if open_count:
        return f"the gate's veto kept {counted(open_count, 'write')} open"
    if let_pass:
        return f"the gate's veto let {counted(let_pass, 'write')} through"
    return "the gate's veto was asked"


def _policy_asked(facts: Facts) -> str:
    acts = []
    for verdict, count in facts.get("verdicts", {}).items():
        acts.append(f"{VERDICTS.get(verdict, verdict)} {counted(count, 'write')}")
    return f"{' and '.join(acts) or 'answered'}: what signs there by itself was asked"


def _deadline_passed(facts: Facts) -> str:
    acts = []
    for verdict, count in facts.get("verdicts", {}).items():
        acts.append(f"{VERDICTS.get(verdict, verdict)} {counted(count, 'write')}")
    return f"{' and '.join(acts) or 'decided'}: the deadline had passed"


def _request_released(facts: Facts) -> str:
    return f"gave back the review that {_subject(facts)} had taken"


def _request_assigned(facts: Facts) -> str:
    return f"handed a review to {_subject(facts)}"


def _request_reminded(facts: Facts) -> str:
    return f"reminded {_named_to(facts) or 'those who may decide'} of a review"


def _request_escalated(facts: Facts) -> str:
    return f"asked {_named_to(facts)} too: a review had waited"


def _request_reopened(facts: Facts) -> str:
    changed = ", ".join(map(str, facts.get("changed", ())))
    return f"re-opened a review under another policy: {changed.replace('_', ' ')}"


def _named_to(facts: Facts) -> str:
    return ", ".join(_name_of_holder(str(name)) for name in facts.get("to", ()))


def _delegated(facts: Facts) -> str:
    begins = str(facts.get("begins", ""))[:10]
    ends = str(facts.get("ends", ""))[:10]
    return f"lets {_subject(facts)} decide in their place from {begins} to {ends}"


def _delegation_revoked(facts: Facts) -> str:
    delegator = facts.get("delegator", "")
    return f"ended that {_subject(facts)} decides for {delegator}"


def _standing_policy_made(facts: Facts) -> str:
    ends = str(facts.get("ends", ""))[:10]
    uses = counted(facts.get("most_uses", 0), "write")
    return f"lets {facts.get('gate', '')} sign by itself until {ends}, {uses} at most"


def _standing_policy_revoked(facts: Facts) -> str:
    number = facts.get("number", "")
    return f"revoked policy {number} of {_subject(facts)} at {facts.get('gate', '')}"


def _standing_policy_used(facts: Facts) -> str:
    signed = counted(facts.get("count", 0), "write")
    return f"policy {facts.get('number', '')} signed {signed}, {facts.get('uses', 0)} by then"


def _resumed(facts: Facts) -> str:
    allowed = facts.get("allowed")
    if not allowed:
        return "resumed the run"
    return f"resumed the run, which may repeat {', '.join(allowed)}"


def _settled(facts: Facts) -> str:
    happened = bool(facts.get("happened"))
    return f"said of {facts.get('task', '')} that {_HAPPENED[happened]}"


def _rewound(facts: Facts) -> str:
    return f"rewound the run to {_checkpoint(facts)}"


def _forked(facts: Facts) -> str:
    return f"made this run as a fork of {_checkpoint(facts)}"


def _replayed(facts: Facts) -> str:
    return f"made this run as a replay from {_checkpoint(facts)}"


def _runs_forked(facts: Facts) -> str:
    forked = counted(facts.get("forked", 0), "run")
    return f"forked {forked}, {facts.get('refused', 0):,} refused"


def _memory_forgotten(facts: Facts) -> str:
    key = facts.get("key", "")
    namespace = facts.get("namespace", "")
    return f"forgot {key} in {namespace}, version {facts.get('version', '')}"


def _exported(facts: Facts) -> str:
    if facts.get("as_is"):
        return "exported the run as a bundle, as it is: it did not verify"
    return "exported the run as a bundle"


# Refusals.


def _refused_right(facts: Facts) -> str:
    right = str(facts.get("right", "do that"))
    words = _RIGHTS.get(str(facts.get("right")), right)
    return f"was refused: may not {words}"


def _refused_tampered(facts: Facts) -> str:
    return f"was refused: {facts.get('row') or 'a record'} is not as it was written"


def _refused_token(facts: Facts) -> str:
    return f"refused token {facts.get('token', '')}: its row is not as it was made"


def _refused_import(facts: Facts) -> str:
    return f"was refused: a bundle was not imported ({_code(facts)})"


def _tokens_throttled(facts: Facts) -> str:
    return f"paused tokens from {facts.get('address') or 'an address'}"


def _refused_login(facts: Facts) -> str:
    return f"refused a log-in{_login(facts)}"


def _login_locked(facts: Facts) -> str:
    return f"locked log-ins{_login(facts)}"


def _refused_company_login(facts: Facts) -> str:
    reason = str(facts.get("reason", "")).replace("_", " ")
    return f"refused a log-in of the company for {facts.get('id', '')}: {reason}"


# Accounts, groups and permissions.


def _account_bound(facts: Facts) -> str:
    provider = facts.get("provider", "")
    bound = f"bound the account {_subject(facts)} to a person of {provider}"
    return f"{bound}{_by_log_in(facts)}"


def _account_unbound(facts: Facts) -> str:
    return f"took the log-in of the company from the account {_subject(facts)}"


def _account_changed(facts: Facts) -> str:
    changes = []
    for name, value in facts.get("changed", {}).items():
        if name in _FLAGS:
            changes.append(f"{_FLAGS[name]} {'on' if value else 'off'}")
        else:
            # Beside the flags only a new password is noted, and never what it is.
            changes.append("password changed")
    return f"changed account {_subject(facts)} ({', '.join(changes)})"


def _members_changed(facts: Facts) -> str:
    """Say who was added to which group, and who was removed from it."""
    subject = str(facts.get("subject", ""))
    acts = []
    for name, verb, preposition in (
        ("added", "added", "to"),
        ("removed", "removed", "from"),
    ):
        others = [str(other) for other in facts.get(name, ())]
        if not others:
            continue
        # The line is about a group and its people, or about a person and his groups.
        if subject.startswith("group:"):
            members = " and ".join(map(_name_in, others))
            groups = _name_of_holder(subject)
        else:
            members = _name_in(subject)
            groups = " and ".join(f"the group {_name_in(other)}" for other in others)
        acts.append(f"{verb} {members} {preposition} {groups}")
    done = " and ".join(acts) or "changed members of groups"
    return f"{done}{_by_log_in(facts)}"


def _by_log_in(facts: Facts) -> str:
    """Say that a person did nothing but log in: the directory changed the rest."""
    return ", by logging in" if facts.get("by_log_in") else ""


def _rights_changed(facts: Facts) -> str:
    """Say who was given which rights, and from whom they were taken."""
    holder = _name_of_holder(str(facts.get("subject", "")))
    acts = []
    for name, verb, preposition in (
        ("added", "gave", "to"),
        ("removed", "took", "from"),
    ):
        rights = [_name_in(str(right)) for right in facts.get(name, ())]
        if rights:
            acts.append(f"{verb} {', '.join(rights)} {preposition} {holder}")
    return " and ".join(acts) or "changed permissions"


def _group_deleted(facts: Facts) -> str:
    return f"deleted the group {_subject(facts)}"


def _token_made(facts: Facts) -> str:
    scopes = ", ".join(map(str, facts.get("scopes", ())))
    return f"made token {facts.get('token', '')} of {_subject(facts)}: {scopes}"


def _passkey_registered(facts: Facts) -> str:
    return f"registered the passkey {facts.get('name', '')}"


def _passkey_revoked(facts: Facts) -> str:
    of = f" of {facts['of']}" if "of" in facts else ""
    return f"revoked the passkey {facts.get('name', '')}{of}"


def _webhook_added(facts: Facts) -> str:
    return f"added a webhook to {facts.get('host', '')}"


def _webhook_removed(facts: Facts) -> str:
    return f"removed a webhook to {facts.get('host', '')}"


def _webhook_switched(facts: Facts) -> str:
    state = "on" if facts.get("active") else "off"
    return f"switched a webhook {state}"


def _door_made(facts: Facts) -> str:
    return f"made the door {facts.get('door', '')} for {facts.get('account', '')}"


def _door_rotated(facts: Facts) -> str:
    return f"gave the door {facts.get('door', '')} another secret"


def _door_switched(facts: Facts) -> str:
    state = "on" if facts.get("enabled") else "off"
    return f"switched the door {facts.get('door', '')} {state}"


def _door_message_offered(facts: Facts) -> str:
    door = facts.get("door", "")
    return f"offered message {facts.get('message', '')} at the door {door} again"


def _door_messages_removed(facts: Facts) -> str:
    count = counted(facts.get("count", 0), "message")
    door = facts.get("door", "")
    return f"removed {count} that the door {door} had not delivered in seven days"


def _token_revoked(facts: Facts) -> str:
    return f"revoked token {facts.get('token', '')} of {_subject(facts)}"


# Keys and verification.


def _keys_rotated(facts: Facts) -> str:
    count = sum((facts.get("rows") or {}).values())
    return f"encrypted {counted(count, 'row')} under {facts.get('key', '')}"


def _keys_changed(facts: Facts) -> str:
    """Say which keys came and went; or, where those before are not known, which keys
    there are.
    """
    sentence = _changes_of_keys(facts)
    if "unproven" in facts:
        sentence += "; the line before this one does not verify"
    return sentence


def _changes_of_keys(facts: Facts) -> str:
    if "came" not in facts:
        return f"found these keys in use: {', '.join(_all_keys(facts['keys']))}"
    changes = [
        *_changed_keys(facts["came"], facts["went"]),
        *_compromised_keys(facts["came"], facts["went"]),
        *_keys_that_make(facts["came"], facts["went"], facts["keys"]["makes"]),
    ]
    if not changes:
        return "found the same keys in use"
    return f"found other keys in use: {', '.join(changes)}"


def _all_keys(keys: Facts) -> Iterator[str]:
    for sort, word in _SORTS.items():
        names = sorted(keys[sort])
        if names:
            plural = "s" if len(names) > 1 else ""
            yield f"{word}{plural} {' and '.join(names)}"
    makes = keys["makes"]
    for sort, verb in _MAKES.items():
        if sort in makes:
            yield f"{makes[sort]} {verb}"


def _changed_keys(came: Facts, went: Facts) -> Iterator[str]:
    for sort, word in _SORTS.items():
        names_before: Collection[str] = went.get(sort, ())
        names_now: Collection[str] = came.get(sort, ())
        for name in names_now:
            # Under a name that was there before, it is the key that changed.
            change = "another one" if name in names_before else "new"
            yield f"{word} {name} is {change}"
        for name in names_before:
            if name not in names_now:
                yield f"{word} {name} is gone"
    if "bundle" in came:
        yield "the bundle key is another one"


def _compromised_keys(came: Facts, went: Facts) -> Iterator[str]:
    compromised: Collection[str] = came.get("compromised", ())
    for name in compromised:
        yield f"{name} counts as compromised"
    for name in went.get("compromised", ()):
        if name not in compromised:
            yield f"{name} does not count as compromised"


def _keys_that_make(came: Facts, went: Facts, makes: Facts) -> Iterator[str]:
    for sort in came.get("makes", ()):
        yield f"{makes[sort]} {_MAKES[sort]}"
    if "encryption" in went.get("makes", ()) and "encryption" not in makes:
        yield "nothing encrypts"


def _runs_verified(facts: Facts) -> str:
    checked = counted(facts.get("checked", 0), "run")
    return f"verified {checked}, {facts.get('failed', 0):,} bad"


def _run_marked(facts: Facts) -> str:
    row = facts.get("row") or "a record"
    return f"marked the run as tampered: {row} is not as it was written"


def _heads_anchored(facts: Facts) -> str:
    return f"anchored {counted(len(facts.get('heads', ())), 'run')}"


def _audit_stamped(facts: Facts) -> str:
    """Say who stated when which line of the log existed."""
    number = facts.get("number", 0)
    by = facts.get("authority") or "an authority"
    return f"had line {number:,} of the audit log stamped by {by} at {facts.get('at')}"


# Retention and erasure.


def _history_pruned(facts: Facts) -> str:
    """Say how much a clean-up removed, and what it left."""
    sentence = f"removed {counted(facts.get('checkpoints', 0), 'checkpoint')}"
    runs = facts.get("runs", 0)
    if runs:
        sentence += f", {counted(runs, 'whole run')} among them"
    bad = _counted_runs(facts, "bad")
    if bad:
        sentence += f"; {counted(bad, 'run')} did not verify and stayed"
    referred = _counted_runs(facts, "referred")
    if referred:
        named = counted(referred, "run")
        sentence += f"; rows of other apps name {named}, which stayed"
    # `skipped` counts the runs that are bad or referred to as well.
    skipped_otherwise = facts.get("skipped", 0) - bad - referred
    if skipped_otherwise > 0:
        skipped = counted(skipped_otherwise, "run")
        sentence += f"; {skipped} could not be cleaned up and stayed"
    if facts.get("stopped"):
        sentence += "; somebody stopped it"
    return sentence


def _counted_runs(facts: Facts, name: str) -> int:
    """Return how many runs a line counts under a name. It lists the first of them only,
    and lines of an older release have no count.
    """
    listed = len(facts.get(name, ()))
    return max(listed, int(facts.get(f"{name}_count", 0)))


def _thread_pruned(facts: Facts) -> str:
    count = counted(facts.get("checkpoints", 0), "checkpoint")
    return f"removed {count} of a thread, with their writes"


def _run_removed(facts: Facts) -> str:
    return (
        f"removed the run {facts.get('key', '')}, which was {facts.get('status', '')}"
    )


def _run_erased(facts: Facts) -> str:
    paths = facts.get("paths", 0)
    values = "all values of the run"
    if paths:
        values = f"the values at {counted(paths, 'path')}"
    return f"erased {values}, in {counted(facts.get('rows', 0), 'row')}"


def _policy(facts: Facts) -> str:
    """Say the rules of a retention policy."""
    rules = []
    if facts.get("keep_last") is not None:
        rules.append(f"the newest {facts['keep_last']:,} stay")
    for name, rule in (
        ("max_age_days", "checkpoints of {} runs go"),
        ("remove_runs_after_days", "{} runs go whole"),
    ):
        days_by_status = facts.get(name) or {}
        for status, days in days_by_status.items():
            words = rule.format(status)
            if (name, status) == ("remove_runs_after_days", "waiting"):
                words = "idle threads go"
            rules.append(f"{words} after {days:g} days")
    if facts.get("archive"):
        rules.append("a bundle is archived first")
    return ", ".join(rules) or "nothing goes"


def _policy_saved(facts: Facts) -> str:
    return f"set the retention policy: {_policy(facts)}"


def _policy_confirmed(facts: Facts) -> str:
    count = counted(facts.get("checkpoints", 0), "checkpoint")
    return f"confirmed the dry run of the retention policy: {count}"


def _policy_refused(facts: Facts) -> str:
    return f"did not run the retention policy ({_code(facts)})"


def _policy_deleted(facts: Facts) -> str:
    return f"deleted the retention policy: {_policy(facts)}"


# The audit log itself.


def _database_restored(facts: Facts) -> str:
    number = facts.get("number", 0)
    reason = facts.get("reason") or "no reason said"
    return f"let the audit log go on behind line {number:,}: {reason}"


def _audit_exported(facts: Facts) -> str:
    return f"exported the audit log as {str(facts.get('format', '')).upper()}"


KINDS: dict[str, tuple[str, Words]] = {
    "signed": ("Decisions signed", _signed),
    "not_needed": ("No approval needed", _not_needed),
    "deadline_passed": ("Deadline passed", _deadline_passed),
    "veto_asked": ("Veto asked", _veto_asked),
    "policy_asked": ("Policy asked", _policy_asked),
    "request_expired": (
        "Review closed by its deadline",
        _always("closed a review: the deadline had passed"),
    ),
    "request_reminded": ("Reminded of a review", _request_reminded),
    "request_escalated": ("Others asked too", _request_escalated),
    "request_reopened": ("Review re-opened", _request_reopened),
    "request_claimed": ("Review taken", _always("took a review")),
    "request_commented": (
        "Comment written",
        _always("commented on a review"),
    ),
    "request_released": ("Review given back", _request_released),
    "request_assigned": ("Review handed over", _request_assigned),
    "cancelled": ("Run cancelled", _always("asked to cancel the run")),
    "resumed": ("Run resumed", _resumed),
    "settled": ("Outcome settled", _settled),
    "rewound": ("Run rewound", _rewound),
    "forked": ("Run forked", _forked),
    "replayed": ("Run replayed", _replayed),
    "runs_forked": ("Many runs forked", _runs_forked),
    "refused_not_a_reviewer": (
        "Refused: no reviewer",
        _always("was refused: not a reviewer of it"),
    ),
    "passkey_registered": ("Passkey registered", _passkey_registered),
    "passkey_revoked": ("Passkey revoked", _passkey_revoked),
    "delegated": ("Right to review passed on", _delegated),
    "delegation_revoked": ("Delegation revoked", _delegation_revoked),
    "standing_policy_made": ("Standing policy made", _standing_policy_made),
    "standing_policy_revoked": ("Standing policy revoked", _standing_policy_revoked),
    "standing_policy_used": ("Standing policy used", _standing_policy_used),
    "webhook_added": ("Webhook added", _webhook_added),
    "webhook_removed": ("Webhook removed", _webhook_removed),
    "webhook_switched": ("Webhook switched", _webhook_switched),
    "webhook_tested": (
        "Webhook tested",
        _always("sent a test to a webhook"),
    ),
    "webhook_sent_again": (
        "Notice sent again",
        _always("sent a notice to a webhook again"),
    ),
    "door_made": ("Door made", _door_made),
    "door_rotated": ("Secret of a door changed", _door_rotated),
    "door_switched": ("Door switched", _door_switched),
    "door_message_offered": ("Message offered again", _door_message_offered),
    "door_messages_removed": ("Undelivered messages removed", _door_messages_removed),
    "refused_confirmation": (
        "Refused: not confirmed",
        _always("was refused: did not show that it was they who sign"),
    ),
    "refused_right": ("Refused: no permission", _refused_right),
    "refused_cancel": (
        "Refused: cancel",
        _always("was refused: may not cancel runs"),
    ),
    "refused_resume": (
        "Refused: resume",
        _always("was refused: may not resume runs"),
    ),
    "refused_settle": (
        "Refused: settle",
        _always("was refused: may not settle outcomes"),
    ),
    "refused_travel": (
        "Refused: go on from",
        _always("was refused: may not go on from checkpoints"),
    ),
    "refused_export": (
        "Refused: export",
        _always("was refused: may not export the audit log"),
    ),
    "refused_pin": (
        "Refused: pin",
        _always("was refused: may not pin checkpoints"),
    ),
    "refused_erase": (
        "Refused: erase",
        _always("was refused: may not erase values"),
    ),
    "refused_tampered": ("Refused: tampered", _refused_tampered),
    "refused_token": ("Refused: token", _refused_token),
    "tokens_throttled": ("Tokens throttled", _tokens_throttled),
    "refused_login": ("Log-in refused", _refused_login),
    "login_locked": ("Log-in locked", _login_locked),
    "refused_company_login": ("Log-in of the company refused", _refused_company_login),
    "account_bound": ("Account bound", _account_bound),
    "account_unbound": ("Account unbound", _account_unbound),
    "members_changed": ("Members of groups", _members_changed),
    "rights_changed": ("Permissions", _rights_changed),
    "account_changed": ("Accounts", _account_changed),
    "group_deleted": ("Group deleted", _group_deleted),
    "token_made": ("Token made", _token_made),
    "token_revoked": ("Token revoked", _token_revoked),
    "keys_rotated": ("Keys rotated", _keys_rotated),
    "keys_changed": ("Keys changed", _keys_changed),
    "runs_verified": ("Runs verified", _runs_verified),
    "run_marked": ("Run marked tampered", _run_marked),
    "heads_anchored": ("Heads anchored", _heads_anchored),
    "audit_stamped": ("Audit log stamped", _audit_stamped),
    "memory_forgotten": ("Memory forgotten", _memory_forgotten),
    "history_pruned": ("History removed", _history_pruned),
    "thread_pruned": ("Checkpoints of a thread removed", _thread_pruned),
    "run_removed": ("Run removed", _run_removed),
    "retention_policy_saved": ("Retention policy saved", _policy_saved),
    "retention_policy_confirmed": ("Retention policy confirmed", _policy_confirmed),
    "retention_policy_refused": ("Retention policy refused", _policy_refused),
    "retention_policy_deleted": ("Retention policy deleted", _policy_deleted),
    "rows_sealed": (
        "Older rows sealed",
        _always("sealed the holds, pins and policies of an older version, once"),
    ),
    "seals_renewed": (
        "Rows sealed anew",
        _always("sealed every row of an older release anew, once"),
    ),
    "run_held": ("Legal hold put on", _always("put the run under a legal hold")),
    "hold_released": (
        "Legal hold released",
        _always("released a legal hold on the run"),
    ),
    "checkpoint_pinned": (
        "Checkpoint pinned",
        _always("pinned a checkpoint of the run"),
    ),
    "checkpoint_unpinned": (
        "Checkpoint unpinned",
        _always("unpinned a checkpoint of the run"),
    ),
    "run_erased": ("Values erased", _run_erased),
    "run_exported": ("Run exported", _exported),
    "run_imported": ("Run imported", _always("took the run in from a bundle")),
    "receipt_exported": (
        "Receipt exported",
        _always("exported a receipt of a decision"),
    ),
    "refused_import": ("Refused: import", _refused_import),
    "database_restored": ("Database restored", _database_restored),
    "audit_exported": ("Audit log exported", _audit_exported),
}
"""Kind -> its name in lists, and the function that returns the sentence of a line. A
kind that is missing here is shown by its own name.
"""


def kind_name(kind: str) -> str:
    """Return the name of a kind in lists."""
    if kind in KINDS:
        return KINDS[kind][0]
    return kind.replace("_", " ").capitalize()


def sentence_of(kind: str, facts: Any) -> str:
    """Return the sentence on what the actor of a line did; the name of its kind where
    its facts lack the usual form.
    """
    try:
        return KINDS[kind][1](facts)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return kind.replace("_", " ")


def accounts_in(facts: Any) -> set[str]:
    """Return the user names of the accounts that the facts of a line mention."""
    return {
        name.removeprefix(ACCOUNT)
        for name in _mentioned(facts)
        if name.startswith(ACCOUNT)
    }


def with_full_names(facts: Any, full_names: Mapping[str, str]) -> Any:
    """Return the facts of a line with each account as `Full Name (account)`.

    `full_names` maps a user name to the person's full name. The account stays beside
    it: people may share a name, and may change theirs after the line was written.
    """
    if not isinstance(facts, dict):
        return facts

    def with_full_name(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [with_full_name(item) for item in value]
        account = str(value).removeprefix(ACCOUNT)
        if str(value).startswith(ACCOUNT) and full_names.get(account):
            return f"{ACCOUNT}{full_names[account]} ({account})"
        return value

    naming = {name: facts[name] for name in _NAMING if name in facts}
    return facts | {name: with_full_name(value) for name, value in naming.items()}


def _mentioned(facts: Any) -> Iterable[str]:
    if not isinstance(facts, dict):
        return []
    mentioned: list[str] = []
    for name in _NAMING:
        value = facts.get(name, ())
        if isinstance(value, str):
            mentioned.append(value)
        elif isinstance(value, list | tuple):
            mentioned.extend(str(item) for item in value)
    return mentioned
