"""The tabs of the run page: what changed, the state, the writes held, the results, the log. Reads of one checkpoint."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from approvals.models import ApprovalRequest, RequestStatus
from approvals.views.edit_script import Steps, shared_start
from approvals.views.inbox import name_of, names_of
from approvals.views.leaf import ERASED
from approvals.views.page import read_number
from checkpoints import timeline
from checkpoints.core.diff import ADDED, CHANGED, REMOVED, written
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_json import escaped, indented, json_text, said_of_rest
from checkpoints.memory.read_records import memory_at
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, TaskResult
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_or_reason, unreadable_reason
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.timeline import PARTITIONS, Change, NodeOutput, outputs
from orchestrator.engine import Task
from orchestrator.engine.canonical import encode
from orchestrator.engine.errors import UNREADABLE
from orchestrator.engine.frontier import visit_of
from orchestrator.engine.trace import LIVE
from orchestrator.views.run_timeline import url

MOST_CHANGES = 300
MOST_COUNTED = 5000
"""Changes of one checkpoint that are counted; a value that is one long list may have millions."""
ONE_LINE = 400
BEFORE = 80
"""Characters before the first difference of two long values, from which they are shown."""
LONGEST_TEXT = 4000
"""Characters of a text of several lines that is shown as text, rather than as a part of a JSON line."""
MOST_LEVELS = 8
"""Levels of an object that are broken into paths; what lies deeper is one value."""
LONG = 160
"""Characters from which a value of the state is folded."""
CUT = 32 * 1024
"""Characters of one value that are shown; more is said to be there."""
EVENTS = 200
SIGNS = {"changed": ("~", "chg", "changed"), "added": ("+", "new", "added"), "removed": ("−", "del", "removed")}


def changed_rows(checkpoint: Checkpoint, snapshot: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """What this checkpoint changed against its parent, by partition."""
    compared = timeline.changes(checkpoint, at_most=MOST_COUNTED)
    found = list(islice(_opened(compared), MOST_COUNTED))
    shown, seq = found[:MOST_CHANGES], read_number(query.get("at", ""))
    cleaned_up = _parent_is_gone(checkpoint, compared)
    groups = [
        {
            "name": name,
            "rows": [
                {**_change(one), "history": _history_url(checkpoint.run, seq, one)}
                for one in shown
                if one.partition == name
            ],
            "total": sum(1 for one in found if one.partition == name),
        }
        for name in ("scratch", "artifacts", "diagnostics", "input")
    ]
    return {
        "groups": groups,
        "total": len(found),
        "shown": len(shown),
        "cut": len(found) > len(shown),
        "uncounted": len(found) == MOST_COUNTED,
        "count": len(found),
        "cleaned_up": cleaned_up,
        "has_before": cleaned_up or any(one.kind != ADDED for one in shown),
    }


def _opened(changes: Iterable[Change]) -> Iterator[Change]:
    """Break objects that are new, or that went, into their paths, so that each line shows one value."""
    for change in changes:
        yield from _leaves(change, MOST_LEVELS)


def _leaves(change: Change, levels: int) -> Iterator[Change]:
    value = change.before if change.kind == REMOVED else change.after
    is_new = change.before is None
    # A new item of a list is one value: its place says nothing without the rest of it.
    is_item = change.path.endswith("]")
    opens = isinstance(value, dict) and value and not is_item and not is_tombstone(value) and levels > 0
    if not opens or not (is_new or change.kind == REMOVED):
        yield change
        return
    for key, inner in value.items():
        path = written((key,))
        joint = "" if path.startswith("[") or not change.path else "."
        name = f"{change.path}{joint}{path}"
        if change.kind == REMOVED:
            part = replace(change, path=name, before=inner)
        else:
            part = replace(change, path=name, kind=ADDED, after=inner)
        yield from _leaves(part, levels - 1)


def _parent_is_gone(checkpoint: Checkpoint, found: list[Change]) -> bool:
    """Whether the checkpoint before it was cleaned up. One query, and none where something is known of before."""
    unknown = checkpoint.parent is not None and all(one.kind == ADDED for one in found)
    return unknown and timeline.parent_of(checkpoint) is None


def _change(one: Change) -> dict[str, Any]:
    sign, css, word = SIGNS[one.kind]
    stem, dot, last = one.path.rpartition(".")
    before, after = shown_pair(one.kind, one.before, one.after)
    return {
        "before_text": _as_text(one.before),
        "after_text": _as_text(one.after),
        "sign": sign,
        "css": css,
        "word": word,
        "stem": stem + dot,
        "leaf": last or "all",
        "before": before,
        "after": after,
        "who": one.set_by or ("engine" if one.partition == "diagnostics" else ""),
    }


def _as_text(value: Any) -> str:
    """Return a text of several lines as it reads; empty for every other value, and for one that is too long to show."""
    is_text = isinstance(value, str) and "\n" in value.strip()
    return value if is_text and len(value) <= LONGEST_TEXT else ""


def _history_url(run: Run, seq: int | None, one: Change) -> str:
    """Where the page watches the path; an input never changes."""
    if one.partition == "input" or not one.path:
        return ""
    return url(run, at=seq, path=f"{one.partition}{'' if one.path.startswith('[') else '.'}{one.path}")


def shown_pair(kind: str, before: Any, after: Any) -> tuple[str | None, str | None]:
    """Two values that differ as lines of JSON, long ones from where they do; None for the one that is not there."""
    start = 0 if kind != CHANGED else _first_difference(before, after)
    return None if kind == ADDED else compact(before, start), None if kind == REMOVED else compact(after, start)


def _first_difference(before: Any, after: Any) -> int:
    """From where two long values are shown, so that what differs is seen."""
    start = shared_start(encode(before).decode(), encode(after).decode(), Steps())
    return max(0, start - BEFORE) if start > ONE_LINE - BEFORE else 0


def compact(value: Any, start: int = 0) -> str:
    """A value as one line of JSON; of a long one a part from `start` on, with its length and fingerprint. What was
    erased is called so, without the quotes of a text.
    """
    if is_tombstone(value):
        return ERASED
    data = encode(value)
    if len(data) <= ONE_LINE:
        return json_text(value)
    text = data.decode()
    more = said_of_rest(len(text) - ONE_LINE, data)
    return f"{'…' if start else ''}{escaped(text[start : start + ONE_LINE])}{more}"


def state_rows(checkpoint: Checkpoint, snapshot: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """The whole state by partition, long values folded."""
    parts = []
    for name in PARTITIONS:
        value = timeline.input_of(checkpoint.run) if name == "input" else snapshot[name]
        erased = is_tombstone(value)
        rows = [_leaf(key, inner) for key, inner in value.items()] if isinstance(value, dict) and not erased else []
        parts.append({"name": name, "rows": rows, "erased": erased, "size": sum(row["size"] for row in rows)})
    order = ("scratch", "artifacts", "input", "diagnostics")
    return {"parts": sorted(parts, key=lambda part: order.index(part["name"])), "count": None}


def _leaf(key: str, value: Any) -> dict[str, Any]:
    data, erased = encode(value), is_tombstone(value)
    long = not erased and (len(data) > LONG or isinstance(value, dict))
    text = ERASED if erased else _cut(value) if long else json_text(value)
    return {"key": key, "long": long, "erased": erased, "text": text, "size": len(data)}


def _cut(value: Any) -> str:
    """A value as indented JSON, as far as it is shown."""
    text = indented(value)
    if len(text) <= CUT:
        return escaped(text)
    return f"{escaped(text[:CUT])}\n{said_of_rest(len(text) - CUT, encode(value))}"


def write_rows(checkpoint: Checkpoint, snapshot: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """The writes that gates held at this checkpoint, each in the revision of then."""
    visits = {visit_of(key) for key in held_rows(snapshot)}
    rows: dict[Any, PendingWrite] = {}
    if visits:
        found = PendingWrite.objects.filter(run=checkpoint.run_id, line=checkpoint.line)
        found = found.filter(node__in={n for n, _ in visits}, visit__in={v for _, v in visits})
        for row in found.order_by("node", "visit", "index", "position", "revision"):
            if row.write not in rows or row.staged_at <= checkpoint.created_at:
                rows[row.write] = row
    shown = [row for row in rows.values() if (row.node, row.visit) in visits]
    withdrawn = _withdrawn_tasks(checkpoint, {row.node for row in shown})
    for row in shown:
        row.fault = fault_of(row, protection_of(checkpoint.run))  # type: ignore[attr-defined]
        value = read_or_reason(row, "value")
        row.text = compact(value)  # type: ignore[attr-defined]
        row.withdrawn = row.task in withdrawn  # type: ignore[attr-defined]
    return {"rows": shown, "count": len(shown)}


def _withdrawn_tasks(checkpoint: Checkpoint, nodes: set[str]) -> set[str]:
    """The tasks whose request was withdrawn since. One query, none where nothing is held."""
    if not nodes:
        return set()
    at = {"run": checkpoint.run_id, "line": checkpoint.line, "node__in": nodes}
    found = ApprovalRequest.objects.filter(**at, status=RequestStatus.WITHDRAWN)
    return {str(Task(*task)) for task in found.values_list("node", "visit", "index")}


def held_rows(snapshot: dict[str, Any]) -> set[str]:
    """The visits ("node:visit") that a gate holds in this snapshot, those of an open superstep too."""
    asked = {task.rpartition(":")[0] for task in snapshot.get("open", {}).get("asked", ())}
    return {*snapshot["frontier"].get("waiting", {}), *asked}


def result_rows(checkpoint: Checkpoint, snapshot: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """What the nodes of this checkpoint gave: the journal's rows, and for the others that nothing was kept."""
    entries = checkpoint.nodes
    journal = TaskResult.objects.filter(
        run=checkpoint.run_id, line=checkpoint.line, node__in={e["node"] for e in entries}
    ).select_related("settled_by")
    kept = [row for row in journal if any((e["node"], e.get("visit", 1)) == (row.node, row.visit) for e in entries)]
    done = {(row.node, row.visit) for row in kept}
    rows = [_result(row, protection_of(checkpoint.run)) for row in kept]
    rest = [entry for entry in entries if (entry["node"], entry.get("visit", 1)) not in done]
    told = timeline.node_outputs(checkpoint) if rest else []
    rows += [_unrecorded(entry, told) for entry in rest]
    return {"rows": rows, "count": len(rows)}


def _result(row: TaskResult, protection: Protection) -> dict[str, Any]:
    output = read_or_reason(row, "output")
    return {
        "task": row.task,
        "effect": row.effect,
        "outcome": {"done": "done, reused on replay", "not_done": "did not happen"}.get(row.outcome, row.outcome),
        "attempt": row.attempt,
        "settled_by": name_of(row.settled_by) if row.settled_by else "",
        "ms": row.took_ms,
        "output": "" if output is None else _cut(output),
        "kept": "nothing recorded",
        "said": "",
        "fault": fault_of(row, protection),
    }


def _unrecorded(entry: dict[str, Any], told: Iterable[NodeOutput]) -> dict[str, Any]:
    mine = [one for one in told if (one.node, one.visit) == (entry["node"], entry.get("visit", 1))]
    given = [one.output for one in mine]
    tasks = f" × {entry['tasks']}" if entry["tasks"] > 1 else ""
    human = entry["effect"] == "human"
    return {
        "task": f"{entry['node']}:{entry.get('visit', 1)}{tasks}",
        "effect": entry["effect"],
        "outcome": {"held": "waits for people"}.get(entry["outcome"], entry["outcome"]),
        "attempt": 1,
        "ms": entry["ms"],
        "output": _cut(given[0] if len(given) == 1 else given) if given else "",
        "kept": "kept as pending writes" if human else "not recorded, it would run again",
        "said": _SAID.get(mine[0].source, "") if mine else "",
    }


_SAID = {
    outputs.CHANGE: "from what changed; it would run again",
    outputs.TOGETHER: "what several tasks changed together; they would run again",
}


def memory_rows(checkpoint: Checkpoint, snapshot: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """What landed in memory with this checkpoint, by what it did, and what its superstep had read."""
    try:
        found = memory_at(checkpoint) or {}
    except UNREADABLE as error:
        return {"unread": f"What was read {unreadable_reason(error)}.", "count": None}
    said = {f"{one['namespace']}/{one['key']}": one for one in found.get("landed", ())}
    changed = [
        {"word": word, "key": key, "task": said[key]["task"], "version": said[key]["version"], **_SIGN_OF[word]}
        for word in ("added", "updated", "removed")
        for key in found.get(word, ())
    ]
    reads = [_read(one) for one in found.get("reads", ())[:MOST_CHANGES]]
    return {"changed": changed, "reads": reads, "count": len(changed)}


def _read(one: dict[str, Any]) -> dict[str, Any]:
    """What a task asked memory, in words, and each trace that it found. In live mode no content is kept."""
    asked = ERASED
    if one["asked"]:
        first, second = one["asked"][:2]
        asked = f"“{first}” in {second}" if one["kind"] == "search" else f"{first}/{second}"
    traces = [
        {
            "name": f"{trace['namespace']}/{trace['key']}",
            "version": trace["version"],
            "text": "" if one["mode"] == LIVE else compact(trace["content"]),
        }
        for trace in one["traces"]
    ]
    return {**one, "asked": asked, "traces": traces, "gone": not one["asked"]}


_SIGN_OF = {
    word: dict(zip(("sign", "css"), SIGNS[kind][:2], strict=True))
    for word, kind in (("added", "added"), ("updated", "changed"), ("removed", "removed"))
}


def event_rows(checkpoint: Checkpoint, snapshot: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """Two hundred lines of the log, from the number asked for."""
    given = read_number(query.get("e", ""))
    start = max(0, checkpoint.run.event_seq - EVENTS) if given is None else given
    found = timeline.events_after(checkpoint.run_id, start, limit=EVENTS)
    rows = around(found, protection_of(checkpoint.run))
    at = read_number(query.get("at", ""))
    last = rows[-1].seq if rows else start
    return {
        "rows": rows,
        "count": checkpoint.run.event_seq,
        "older": url(checkpoint.run, at=at, tab="events", e=str(max(0, start - EVENTS))) if start else "",
        "newer": url(checkpoint.run, at=at, tab="events", e=str(last)) if last < checkpoint.run.event_seq else "",
    }


def _facts(event: RunEvent, protection: Protection) -> RunEvent:
    """The line with a few words of its payload, and whether it is as it was sealed."""
    event.fault = fault_of(event, protection)  # type: ignore[attr-defined]
    payload = read_or_reason(event, "payload") or {}
    words = payload if isinstance(payload, str) else _words(event.type, payload)
    event.more = words if len(words) <= 200 else f"{words[:200]}…"  # type: ignore[attr-defined]
    return event


def _words(kind: str, payload: dict[str, Any]) -> str:
    if kind == "checkpoint_saved":
        return f"superstep {payload.get('superstep', '')}"
    if kind in ("gate_applied", "request_settled"):
        return str(payload.get("outcome", ""))
    if kind == "approval_not_needed":
        return "decided by the system"
    if kind == "decision_signed":
        return str(payload.get("verdict", ""))
    if kind == "cancel_requested":
        return str(payload.get("reason", ""))
    if kind == "task_settled":
        return "it happened" if payload.get("happened") else "it did not happen"
    return str(payload.get("message", ""))


Detail = Callable[[Checkpoint, dict[str, Any], dict[str, str]], dict[str, Any]]
TABS: dict[str, tuple[str, Detail]] = {
    "changed": ("What changed", changed_rows),
    "state": ("State", state_rows),
    "writes": ("Pending writes", write_rows),
    "results": ("Node results", result_rows),
    "memory": ("Memory", memory_rows),
    "events": ("Events", event_rows),
}


def around(events_: Iterable[RunEvent], protection: Protection) -> list[RunEvent]:
    """Lines of the log with a few words of each, and whoever acted by name."""
    found = [_facts(event, protection) for event in events_]
    names = names_of(event.actor for event in found)
    for event in found:
        event.actor = names.get(event.actor, event.actor)
    return found
