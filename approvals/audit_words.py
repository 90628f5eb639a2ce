"""What a line of the audit log says, as pages, the API and exports put it. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Facts = Mapping[str, Any]

VERDICTS = {"approve": "approved", "edit": "edited", "reject": "rejected", "not_needed": "not needed"}
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
}


def _signed(facts: Facts) -> str:
    verdicts = facts.get("verdicts", {})
    count = sum(verdicts.values())
    parts = [f"{verdicts[name]} {word}" for name, word in VERDICTS.items() if verdicts.get(name)]
    which = f": {', '.join(parts)}" if len(parts) > 1 else f", {parts[0].partition(' ')[2]}" if parts else ""
    return f"signed {_counted(count, 'decision')}{which}"


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _changed(facts: Facts) -> str:
    flags = {"is_active": "active", "is_staff": "staff", "is_superuser": "superuser"}
    changes = []
    for name, value in facts.get("changed", {}).items():
        if name in flags:
            changes.append(f"{flags[name]} {'on' if value else 'off'}")
        else:
            changes.append("password changed")
    return f"changed account {_bare(facts)} ({', '.join(changes)})"


def _members(facts: Facts) -> str:
    """Return who was added to which group, and who was removed from it."""
    subject = str(facts.get("subject", ""))
    acts = []
    for name, verb, preposition in (("added", "added", "to"), ("removed", "removed", "from")):
        others = [str(other) for other in facts.get(name, ())]
        if not others:
            continue
        if subject.startswith("group:"):
            members = " and ".join(_thing(other) for other in others)
            groups = _whole(subject)
        else:
            members = _thing(subject)
            groups = " and ".join(f"the group {_thing(other)}" for other in others)
        acts.append(f"{verb} {members} {preposition} {groups}")
    return " and ".join(acts) or "changed members of groups"


def _rights(facts: Facts) -> str:
    """Who was given which rights, and from whom they were taken."""
    subject, said = _whole(str(facts.get("subject", ""))), []
    for name, did, way in (("added", "gave", "to"), ("removed", "took", "from")):
        if others := [_thing(str(one)) for one in facts.get(name, ())]:
            said.append(f"{did} {', '.join(others)} {way} {subject}")
    return " and ".join(said) or "changed permissions"


def _thing(name: str) -> str:
    """A name without what sort of thing it names."""
    return name.partition(":")[2] or name


def _whole(name: str) -> str:
    """The same, and a group is called so."""
    return f"the group {_thing(name)}" if name.startswith("group:") else _thing(name)


def _bare(facts: Facts) -> str:
    return str(facts.get("subject", "")).partition(":")[2]


def _code(facts: Facts) -> str:
    return str(facts.get("code", "")).replace("_", " ")


_SORTS = {"signing": "signing key", "encryption": "encryption key", "trusted": "trusted key"}
_MAKES = {"signing": "seals", "encryption": "encrypts"}


def _keys(facts: Facts) -> str:
    """Which keys came and went; where nothing is known of those before, which there are."""
    if "came" not in facts:
        said = f"found these keys in use: {', '.join(_all_keys(facts['keys']))}"
    else:
        others = ", ".join(_other_keys(facts))
        said = f"found other keys in use: {others}" if others else "found the same keys in use"
    return said + ("; the line before this one does not verify" if "unproven" in facts else "")


def _all_keys(keys: Facts) -> Iterator[str]:
    for sort, word in _SORTS.items():
        if names := sorted(keys[sort]):
            yield f"{word}{'s' if len(names) > 1 else ''} {' and '.join(names)}"
    yield from (f"{keys['makes'][sort]} {word}" for sort, word in _MAKES.items() if sort in keys["makes"])


def _other_keys(facts: Facts) -> Iterator[str]:
    came, went, makes = facts["came"], facts["went"], facts["keys"]["makes"]
    for sort, word in _SORTS.items():
        was = went.get(sort, ())
        yield from (f"{word} {name} is {'another one' if name in was else 'new'}" for name in came.get(sort, ()))
        yield from (f"{word} {name} is gone" for name in was if name not in came.get(sort, ()))
    if "bundle" in came:
        yield "the bundle key is another one"
    yield from (f"{name} counts as compromised" for name in came.get("compromised", ()))
    for name in went.get("compromised", ()):
        if name not in came.get("compromised", ()):
            yield f"{name} does not count as compromised"
    yield from (f"{makes[sort]} {_MAKES[sort]}" for sort in came.get("makes", ()))
    if "encryption" in went.get("makes", ()) and "encryption" not in makes:
        yield "nothing encrypts"


def _pruned(facts: Facts) -> str:
    """How much a clean-up removed, and what it left."""
    runs, bad = facts.get("runs", 0), len(facts.get("bad", ()))
    said = f"removed {_counted(facts.get('checkpoints', 0), 'checkpoint')}"
    said += f", {_counted(runs, 'whole run')} among them" if runs else ""
    said += f"; {_counted(bad, 'run')} did not verify and stayed" if bad else ""
    referred = len(facts.get("referred", ()))
    said += f"; rows of other apps name {_counted(referred, 'run')}, which stayed" if referred else ""
    left = facts.get("skipped", 0) - bad - referred
    said += f"; {_counted(left, 'run')} could not be cleaned up and stayed" if left > 0 else ""
    return said + ("; somebody stopped it" if facts.get("stopped") else "")


def _erased(facts: Facts) -> str:
    paths = facts.get("paths", 0)
    what = f"the values at {_counted(paths, 'path')}" if paths else "all values of the run"
    return f"erased {what}, in {_counted(facts.get('rows', 0), 'row')}"


def _policy(facts: Facts) -> str:
    """The rules of a retention policy."""
    said = [f"the newest {facts['keep_last']:,} stay"] if facts.get("keep_last") is not None else []
    for name, what in (("max_age_days", "checkpoints of {} runs go"), ("remove_runs_after_days", "{} runs go whole")):
        ages = facts.get(name) or {}
        said += [f"{what.format(status)} after {days:g} days" for status, days in ages.items()]
    return ", ".join(said + ["a bundle is archived first"] * bool(facts.get("archive"))) or "nothing goes"


def _from(facts: Facts) -> str:
    return f"checkpoint {facts['checkpoint']}" if "checkpoint" in facts else "a checkpoint"


KINDS: dict[str, tuple[str, Callable[[Facts], str]]] = {
    "signed": ("Decisions signed", _signed),
    "not_needed": (
        "No approval needed",
        lambda f: f"decided that {_counted(sum(f.get('verdicts', {}).values()), 'write')} needed no approval",
    ),
    "cancelled": ("Run cancelled", lambda f: "asked to cancel the run"),
    "resumed": (
        "Run resumed",
        lambda f: "resumed the run" + (f", which may repeat {', '.join(f['allowed'])}" if f.get("allowed") else ""),
    ),
    "settled": (
        "Outcome settled",
        lambda f: f"said of {f.get('task', '')} that {_HAPPENED.get(bool(f.get('happened')), '')}",
    ),
    "rewound": ("Run rewound", lambda f: f"rewound the run to {_from(f)}"),
    "forked": ("Run forked", lambda f: f"made this run as a fork of {_from(f)}"),
    "replayed": ("Run replayed", lambda f: f"made this run as a replay from {_from(f)}"),
    "runs_forked": (
        "Many runs forked",
        lambda f: f"forked {_counted(f.get('forked', 0), 'run')}, {f.get('refused', 0):,} refused",
    ),
    "refused_not_a_reviewer": ("Refused: no reviewer", lambda f: "was refused: not a reviewer of it"),
    "refused_right": (
        "Refused: no permission",
        lambda f: f"was refused: may not {_RIGHTS.get(str(f.get('right')), str(f.get('right', 'do that')))}",
    ),
    "refused_cancel": ("Refused: cancel", lambda f: "was refused: may not cancel runs"),
    "refused_resume": ("Refused: resume", lambda f: "was refused: may not resume runs"),
    "refused_settle": ("Refused: settle", lambda f: "was refused: may not settle outcomes"),
    "refused_travel": ("Refused: go on from", lambda f: "was refused: may not go on from checkpoints"),
    "refused_export": ("Refused: export", lambda f: "was refused: may not export the audit log"),
    "refused_pin": ("Refused: pin", lambda f: "was refused: may not pin checkpoints"),
    "refused_erase": ("Refused: erase", lambda f: "was refused: may not erase values"),
    "refused_tampered": (
        "Refused: tampered",
        lambda f: f"was refused: {f.get('row') or 'a record'} is not as it was written",
    ),
    "refused_token": ("Refused: token", lambda f: f"refused token {f.get('token', '')}: its row is not as it was made"),
    "tokens_throttled": ("Tokens throttled", lambda f: f"paused tokens from {f.get('address') or 'an address'}"),
    "refused_login": ("Log-in refused", lambda f: f"refused a log-in{_as(f)}"),
    "login_locked": ("Log-in locked", lambda f: f"locked log-ins{_as(f)}"),
    "members_changed": ("Members of groups", _members),
    "rights_changed": ("Permissions", _rights),
    "account_changed": ("Accounts", _changed),
    "group_deleted": ("Group deleted", lambda f: f"deleted the group {_bare(f)}"),
    "token_made": ("Token made", lambda f: f"made token {f.get('token', '')} of {_bare(f)}: {_scopes(f)}"),
    "token_revoked": ("Token revoked", lambda f: f"revoked token {f.get('token', '')} of {_bare(f)}"),
    "keys_rotated": (
        "Keys rotated",
        lambda f: f"encrypted {_counted(sum((f.get('rows') or {}).values()), 'row')} under {f.get('key', '')}",
    ),
    "keys_changed": ("Keys changed", _keys),
    "runs_verified": (
        "Runs verified",
        lambda f: f"verified {_counted(f.get('checked', 0), 'run')}, {f.get('failed', 0):,} bad",
    ),
    "run_marked": (
        "Run marked tampered",
        lambda f: f"marked the run as tampered: {f.get('row') or 'a record'} is not as it was written",
    ),
    "heads_anchored": ("Heads anchored", lambda f: f"anchored {_counted(len(f.get('heads', ())), 'run')}"),
    "memory_forgotten": (
        "Memory forgotten",
        lambda f: f"forgot {f.get('key', '')} in {f.get('namespace', '')}, version {f.get('version', '')}",
    ),
    "history_pruned": ("History removed", _pruned),
    "run_removed": ("Run removed", lambda f: f"removed the run {f.get('key', '')}, which was {f.get('status', '')}"),
    "retention_policy_saved": ("Retention policy saved", lambda f: f"set the retention policy: {_policy(f)}"),
    "retention_policy_confirmed": (
        "Retention policy confirmed",
        lambda f: f"confirmed the dry run of the retention policy: {_counted(f.get('checkpoints', 0), 'checkpoint')}",
    ),
    "retention_policy_refused": (
        "Retention policy refused",
        lambda f: f"did not run the retention policy ({_code(f)})",
    ),
    "retention_policy_deleted": ("Retention policy deleted", lambda f: f"deleted the retention policy: {_policy(f)}"),
    "rows_sealed": ("Older rows sealed", lambda f: "sealed the holds, pins and policies of an older version, once"),
    "run_held": ("Legal hold put on", lambda f: "put the run under a legal hold"),
    "hold_released": ("Legal hold released", lambda f: "released a legal hold on the run"),
    "checkpoint_pinned": ("Checkpoint pinned", lambda f: "pinned a checkpoint of the run"),
    "checkpoint_unpinned": ("Checkpoint unpinned", lambda f: "unpinned a checkpoint of the run"),
    "run_erased": ("Values erased", _erased),
    "run_exported": (
        "Run exported",
        lambda f: "exported the run as a bundle" + (", as it is: it did not verify" if f.get("as_is") else ""),
    ),
    "run_imported": ("Run imported", lambda f: "took the run in from a bundle"),
    "receipt_exported": ("Receipt exported", lambda f: "exported a receipt of a decision"),
    "refused_import": ("Refused: import", lambda f: f"was refused: a bundle was not taken in ({_code(f)})"),
    "database_restored": (
        "Database restored",
        lambda f: f"let the audit log go on behind line {f.get('number', 0):,}: {f.get('reason') or 'no reason said'}",
    ),
    "audit_exported": ("Audit log exported", lambda f: f"exported the audit log as {str(f.get('format', '')).upper()}"),
}
"""Kind -> its name in lists, and what a line of it says. One that is not here says its name."""


def _as(facts: Facts) -> str:
    name, address = facts.get("name"), facts.get("address")
    return (f" as {name}" if name else "") + (f" from {address}" if address else "")


def _scopes(facts: Facts) -> str:
    return ", ".join(map(str, facts.get("scopes", ())))


def kind_name(kind: str) -> str:
    """A kind as lists name it."""
    return KINDS[kind][0] if kind in KINDS else kind.replace("_", " ").capitalize()


def accounts_in(facts: Any) -> set[str]:
    """Return the user names of the accounts that the facts of a line mention."""
    mentioned = _mentioned(facts)
    return {name.removeprefix(ACCOUNT) for name in mentioned if name.startswith(ACCOUNT)}


def with_full_names(facts: Any, full_names: Mapping[str, str]) -> Any:
    """Return the facts of a line with each account as `Full Name (account)`.

    `full_names` maps a user name to the person's full name. The account stays beside it: people may share a name, and
    may change theirs after the line was written.
    """
    if not isinstance(facts, dict):
        return facts

    def named(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [named(item) for item in value]
        account = str(value).removeprefix(ACCOUNT)
        if str(value).startswith(ACCOUNT) and full_names.get(account):
            return f"{ACCOUNT}{full_names[account]} ({account})"
        return value

    return facts | {name: named(facts[name]) for name in _NAMING if name in facts}


def _mentioned(facts: Any) -> list[str]:
    if not isinstance(facts, dict):
        return []
    mentioned = []
    for name in _NAMING:
        value = facts.get(name, ())
        if isinstance(value, str):
            mentioned.append(value)
        elif isinstance(value, list | tuple):
            mentioned.extend(str(item) for item in value)
    return mentioned


def sentence_of(kind: str, facts: Any) -> str:
    """Return what a line says that its actor did; the name of its kind where its facts lack the usual form."""
    try:
        return KINDS[kind][1](facts)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return kind.replace("_", " ")
