"""The tabs of the run page: changes, state, held writes, node results, memory, log.
Each of them reads one checkpoint.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from approvals.display.drawn_change import ONE_LINE, draw_change, sides_of
from approvals.display.leaf import ERASED, json_leaf
from approvals.models import ApprovalRequest, RequestStatus
from approvals.views.inbox import name_of, names_among, names_of
from approvals.views.page import read_number
from checkpoints import timeline
from checkpoints.core.diff import ADDED, REMOVED, written
from checkpoints.core.outcome_lines import REPORTED
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_json import escaped, indented, json_text, said_of_rest
from checkpoints.ledger import pending_writes
from checkpoints.memory.read_records import memory_at
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, TaskResult
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_or_reason, unreadable_reason
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.threads import is_thread
from checkpoints.timeline import Change, NodeOutput, outputs
from orchestrator.display.threads import thread_writes
from orchestrator.engine import Task
from orchestrator.engine.errors import UNREADABLE
from orchestrator.engine.graphs.trace import LIVE
from orchestrator.engine.step.frontier import visit_of
from orchestrator.engine.values.canonical import encode
from orchestrator.views.run_timeline import url

Facts = dict[str, Any]
Query = dict[str, str]
"""The query of the page's address."""
Visit = tuple[str, int]
"""A node and the number of its visit."""

MOST_CHANGES = 300
"""The most changes of one checkpoint that are shown."""
MOST_COUNTED = 5000
"""The most changes of one checkpoint that are counted; a value that is one long list
may have millions.
"""
LONGEST_TEXT = 4000
"""The most characters of a text of several lines that is shown as text, rather than as
a part of a JSON line.
"""
MOST_LEVELS = 8
"""The most levels of an object that are broken into paths; what lies deeper is one
value.
"""
LONG = 160
"""The number of characters from which a value of the state is folded."""
CUT = 32 * 1024
"""The most characters of one value that are shown, with the length of the rest."""
ROOM = 24 * 1024
"""The most characters of folded values that are part of a page; others are loaded."""
EVENTS = 200
"""The most lines of the log on one page of its tab."""
LONGEST_WORDS = 200
"""The most characters of a payload that a line of the log shows."""
SIGNS = {
    "changed": ("~", "chg", "changed"),
    "added": ("+", "new", "added"),
    "removed": ("−", "del", "removed"),
}
"""Kind of a change -> its sign, its CSS class and its word."""


def changed_rows(checkpoint: Checkpoint, snapshot: Facts, query: Query) -> Facts:
    """Return the changes of this checkpoint against its parent, by partition."""
    compared = timeline.changes(checkpoint, at_most=MOST_COUNTED)
    # Broken into paths, one change may become many: they are limited once more.
    changes = list(islice(_opened(compared), MOST_COUNTED))
    shown = changes[:MOST_CHANGES]
    at = read_number(query.get("at", ""))
    groups: list[Facts] = []
    for partition in ("scratch", "artifacts", "diagnostics", "input"):
        rows = [
            _change_with_history(checkpoint.run, at, change)
            for change in shown
            if change.partition == partition
        ]
        total = sum(change.partition == partition for change in changes)
        groups.append({"name": partition, "rows": rows, "total": total})

    cleaned_up = _parent_is_gone(checkpoint, compared)
    return {
        "groups": groups,
        "total": len(changes),
        "shown": len(shown),
        "cut": len(changes) > len(shown),
        "uncounted": len(changes) == MOST_COUNTED,
        "count": len(changes),
        "cleaned_up": cleaned_up,
        "has_before": cleaned_up or any(change.kind != ADDED for change in shown),
    }


def _change_with_history(run: Run, at: int | None, change: Change) -> Facts:
    row = _change(change)
    row["history"] = _history_url(run, at, change)
    return row


def _opened(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes with objects that are new, or were removed, broken into their
    paths, so that each line shows one value.
    """
    for change in changes:
        yield from _leaves(change, MOST_LEVELS)


def _leaves(change: Change, levels: int) -> Iterator[Change]:
    if levels <= 0 or not _is_opened(change):
        yield change
        return
    removed = change.kind == REMOVED
    value = change.before if removed else change.after
    # The parts of a new object are new themselves, whatever the change was called.
    for key, inner in value.items():
        path = f"{change.path}{_joint(change.path, key)}"
        if removed:
            part = replace(change, path=path, before=inner)
        else:
            part = replace(change, path=path, kind=ADDED, after=inner)
        yield from _leaves(part, levels - 1)


def _joint(path: str, key: str) -> str:
    """Return a key as it is written after a path, with a dot where one belongs."""
    step = written((key,))
    if not path or step.startswith("["):
        return step
    return f".{step}"


def _is_opened(change: Change) -> bool:
    """Return whether a change is a whole object that is new, or was removed."""
    if change.kind == REMOVED:
        value = change.before
    elif change.before is None:
        value = change.after
    else:
        return False
    # A new item of a list is one value: its place says nothing without the rest of it.
    if change.path.endswith("]"):
        return False
    if not isinstance(value, dict) or not value:
        return False
    return not is_tombstone(value)


def _parent_is_gone(checkpoint: Checkpoint, changes: list[Change]) -> bool:
    """Return whether the checkpoint before it was cleaned up. One query, and none if a
    change has an earlier value.
    """
    if checkpoint.parent is None:
        return False
    # An earlier value can only come from the parent.
    if any(change.kind != ADDED for change in changes):
        return False
    return timeline.parent_of(checkpoint) is None


def _change(change: Change) -> Facts:
    sign, css, word = SIGNS[change.kind]
    stem, dot, last = change.path.rpartition(".")
    before, after = sides_of(change.kind, change.before, change.after)
    drawn = draw_change(before, after, declared=None, longest=ONE_LINE)
    # Diagnostics that no node wrote are the engine's.
    writer = "engine" if change.partition == "diagnostics" else ""
    return {
        "before_text": _as_text(change.before),
        "after_text": _as_text(change.after),
        "sign": sign,
        "css": css,
        "word": word,
        "stem": stem + dot,
        "leaf": last or "all",
        "before": drawn.before,
        "after": drawn.after,
        "who": change.set_by or writer,
    }


def _as_text(value: Any) -> str:
    """Return a text of several lines as it is; empty for every other value, and for one
    that is too long to show.
    """
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return ""
    if "\n" not in value.strip():
        return ""
    return value


def _history_url(run: Run, seq: int | None, change: Change) -> str:
    """Return the address at which the page watches a path; empty for an input, which
    never changes.
    """
    if change.partition == "input" or not change.path:
        return ""
    joint = "" if change.path.startswith("[") else "."
    return url(run, at=seq, path=f"{change.partition}{joint}{change.path}")


def compact(value: Any) -> str:
    """Return a value as one line of JSON; a long one is cut, with its length and
    fingerprint. An erased value is named as such, without the quotes of a text.
    """
    leaf = json_leaf(value, longest=ONE_LINE)
    return f"{leaf.text}{leaf.rest}"


def state_rows(checkpoint: Checkpoint, snapshot: Facts, query: Query) -> Facts:
    """Return the whole state by partition. Long values are folded; those for which the
    page has no room are loaded when they are opened.
    """
    partitions = {
        "scratch": snapshot["scratch"],
        "artifacts": snapshot["artifacts"],
        "input": timeline.input_of(checkpoint.run),
        "diagnostics": snapshot["diagnostics"],
    }
    address = reverse("state_value", args=[checkpoint.id])
    room = _Room(ROOM)
    parts = [
        _partition(name, value, room, address) for name, value in partitions.items()
    ]
    return {"parts": parts, "count": None}


@dataclass(slots=True)
class _Room:
    """The characters of folded values for which a page still has room."""

    remaining: int

    def takes(self, text: str) -> bool:
        """Return whether a text fits, and then take its room."""
        if len(text) > self.remaining:
            return False
        self.remaining -= len(text)
        return True


def _partition(
    name: str,
    value: Any,
    room: _Room,
    address: str,
) -> Facts:
    erased = is_tombstone(value)
    rows: list[Facts] = []
    if isinstance(value, dict) and not erased:
        for key, inner in value.items():
            row = _leaf(key, inner)
            if row["long"] and not room.takes(row["text"]):
                row["text"] = ""
                query = urlencode({"path": written((name, key))})
                row["load"] = f"{address}?{query}"
            rows.append(row)
    size = sum(row["size"] for row in rows)
    return {"name": name, "rows": rows, "erased": erased, "size": size}


def _leaf(key: str, value: Any) -> Facts:
    size = len(encode(value))
    erased = is_tombstone(value)
    # An object is folded even if it is short: it is read on several lines.
    is_long = not erased and (size > LONG or isinstance(value, dict))
    if erased:
        text = ERASED
    elif is_long:
        text = escaped(indented(value))
    else:
        text = json_text(value)
    return {
        "key": key,
        "long": is_long,
        "erased": erased,
        "text": text,
        "size": size,
    }


def _cut(value: Any) -> str:
    """Return a value as indented JSON, cut if it is too long to show."""
    text = indented(value)
    if len(text) <= CUT:
        return escaped(text)
    return f"{escaped(text[:CUT])}\n{said_of_rest(len(text) - CUT, encode(value))}"


def write_rows(checkpoint: Checkpoint, snapshot: Facts, query: Query) -> Facts:
    """Return the writes that gates held at this checkpoint, each in the revision that
    it had then.
    """
    if is_thread(checkpoint.run):
        return thread_writes(checkpoint, as_text=compact)
    visits = {visit_of(key) for key in held_rows(snapshot)}
    # Most checkpoints hold nothing, and need no query.
    rows: list[PendingWrite] = []
    if visits:
        rows = _writes_of(checkpoint, visits)
    withdrawn = _withdrawn_tasks(checkpoint, {row.node for row in rows})
    for row in rows:
        row.fault = fault_of(row, protection_of(checkpoint.run))  # type: ignore[attr-defined]
        row.text = _text_of(row)  # type: ignore[attr-defined]
        row.withdrawn = row.task in withdrawn  # type: ignore[attr-defined]
    return {"rows": rows, "count": len(rows)}


def _text_of(row: PendingWrite) -> str:
    value = read_or_reason(row, "value")
    if value is None and pending_writes.is_shown_unanswered(row):
        return "not answered yet"
    return compact(value)


def _writes_of(checkpoint: Checkpoint, visits: set[Visit]) -> list[PendingWrite]:
    """Return the writes of these visits, each in its last revision that was staged when
    the checkpoint was made, or in its first. One query.
    """
    rows = PendingWrite.objects.filter(
        run=checkpoint.run_id,
        line=checkpoint.line,
        node__in={node for node, _ in visits},
        visit__in={visit for _, visit in visits},
    )
    by_write: dict[Any, PendingWrite] = {}
    for row in rows.order_by("node", "visit", "index", "position", "revision"):
        # The query names nodes and visits apart, so it matches other pairs of them too.
        if (row.node, row.visit) not in visits:
            continue
        # Revisions come in order, so the last one that is old enough stays.
        if row.write not in by_write or row.staged_at <= checkpoint.created_at:
            by_write[row.write] = row
    return list(by_write.values())


def _withdrawn_tasks(checkpoint: Checkpoint, nodes: set[str]) -> set[str]:
    """Return the tasks whose request was withdrawn since. One query, none if nothing is
    held.
    """
    if not nodes:
        return set()
    requests = ApprovalRequest.objects.filter(
        run=checkpoint.run_id,
        line=checkpoint.line,
        node__in=nodes,
    )
    last_statuses: dict[str, str] = {}
    # What was re-opened is asked by a later request, which counts.
    rows = requests.order_by("ordinal")
    for node, visit, index, status in rows.values_list(
        "node", "visit", "index", "status"
    ):
        last_statuses[str(Task(node, visit, index))] = status
    withdrawn = RequestStatus.WITHDRAWN
    return {task for task, status in last_statuses.items() if status == withdrawn}


def held_rows(snapshot: Facts) -> set[str]:
    """Return the visits ("node:visit") that a gate holds in this snapshot, including
    those of an open superstep.
    """
    visits = set(snapshot["frontier"].get("waiting", {}))
    # An open superstep may have asked before its frontier shows it.
    for task in snapshot.get("open", {}).get("asked", ()):
        visit, _, _ = task.rpartition(":")
        visits.add(visit)
    return visits


def result_rows(checkpoint: Checkpoint, snapshot: Facts, query: Query) -> Facts:
    """Return the outputs of the nodes of this checkpoint: the journal's rows, and an
    entry for each visit whose output was not kept.
    """
    results = _results_of(checkpoint)
    rows = [_result(row, protection_of(checkpoint.run)) for row in results]
    recorded = {(row.node, row.visit) for row in results}
    unrecorded = [
        entry for entry in checkpoint.nodes if _visit_of_entry(entry) not in recorded
    ]
    # The outputs of all nodes are derived together, so only if one is needed.
    if unrecorded:
        node_outputs = list(timeline.node_outputs(checkpoint))
        rows += [_unrecorded(entry, node_outputs) for entry in unrecorded]
    return {"rows": rows, "count": len(rows)}


def _results_of(checkpoint: Checkpoint) -> list[TaskResult]:
    """Return the journal's rows of the visits of a checkpoint. One query."""
    visits = {_visit_of_entry(entry) for entry in checkpoint.nodes}
    journal = TaskResult.objects.filter(
        run=checkpoint.run_id,
        line=checkpoint.line,
        node__in={node for node, _ in visits},
    )
    # The query names nodes alone: a node may have other visits on this line.
    return [
        row
        for row in journal.select_related("settled_by")
        if (row.node, row.visit) in visits
    ]


def _visit_of_entry(entry: Facts) -> Visit:
    return entry["node"], entry.get("visit", 1)


def _visit_of_output(output: NodeOutput) -> Visit:
    return output.node, output.visit


def _result(row: TaskResult, protection: Protection) -> Facts:
    settled_by = ""
    if row.settled_by:
        settled_by = name_of(row.settled_by)
    text = ""
    output = read_or_reason(row, "output")
    if output is not None:
        text = _cut(output)
    return {
        "task": row.task,
        "effect": row.effect,
        "outcome": _OUTCOME_IN_WORDS.get(row.outcome, row.outcome),
        "attempt": row.attempt,
        "settled_by": settled_by,
        "ms": row.took_ms,
        "output": text,
        "kept": "nothing recorded",
        "said": "",
        "fault": fault_of(row, protection),
    }


_OUTCOME_IN_WORDS = {"done": "done, reused on replay", "not_done": "did not happen"}


def _unrecorded(entry: Facts, node_outputs: Iterable[NodeOutput]) -> Facts:
    """Return the row of a visit whose output was not recorded, with the output that
    follows from the checkpoint's changes.
    """
    node, visit = _visit_of_entry(entry)
    task = f"{node}:{visit}"
    if entry["tasks"] > 1:
        task += f" × {entry['tasks']}"
    outcome = entry["outcome"]
    if outcome == "held":
        outcome = "waits for people"
    kept_as = _NOT_RECORDED
    if entry["effect"] == "human":
        kept_as = "kept as pending writes"
    text, source = _derived_output((node, visit), node_outputs)
    return {
        "task": task,
        "effect": entry["effect"],
        "outcome": outcome,
        "attempt": 1,
        "ms": entry["ms"],
        "output": text,
        "kept": kept_as,
        "said": source,
    }


def _derived_output(
    visit: Visit, node_outputs: Iterable[NodeOutput]
) -> tuple[str, str]:
    """Return the output of a visit as text, and how it was derived in words; both empty
    if it has none.
    """
    own = [output for output in node_outputs if _visit_of_output(output) == visit]
    if not own:
        return "", ""
    source = _SAID.get(own[0].source, "")
    if len(own) == 1:
        return _cut(own[0].output), source
    return _cut([output.output for output in own]), source


_NOT_RECORDED = "not recorded, it would run again"
_SAID = {
    outputs.CHANGE: "from what changed; it would run again",
    outputs.TOGETHER: "what several tasks changed together; they would run again",
}


def memory_rows(checkpoint: Checkpoint, snapshot: Facts, query: Query) -> Facts:
    """Return the changes of memory that landed with this checkpoint, and the reads of
    its superstep.
    """
    try:
        record = memory_at(checkpoint) or {}
    except UNREADABLE as error:
        return {"unread": f"What was read {unreadable_reason(error)}.", "count": None}
    landings: dict[str, Facts] = {}
    for landing in record.get("landed", ()):
        landings[f"{landing['namespace']}/{landing['key']}"] = landing
    changed: list[Facts] = []
    for word, kind in _KIND_OF_LANDING.items():
        sign, css, _ = SIGNS[kind]
        for key in record.get(word, ()):
            landing = landings[key]
            row = {
                "word": word,
                "key": key,
                "sign": sign,
                "css": css,
                "task": landing["task"],
                "version": landing["version"],
            }
            changed.append(row)
    shown_reads = record.get("reads", ())[:MOST_CHANGES]
    reads = [_read(read) for read in shown_reads]
    return {"changed": changed, "reads": reads, "count": len(changed)}


def _read(read: Facts) -> Facts:
    """Return a task's read of memory, in words, with each trace that it returned."""
    traces: list[Facts] = []
    for trace in read["traces"]:
        # A read in live mode keeps no content.
        text = ""
        if read["mode"] != LIVE:
            text = compact(trace["content"])
        entry = {
            "name": f"{trace['namespace']}/{trace['key']}",
            "version": trace["version"],
            "text": text,
        }
        traces.append(entry)
    return {
        **read,
        "asked": _question(read),
        "traces": traces,
        "gone": not read["asked"],
    }


def _question(read: Facts) -> str:
    if not read["asked"]:
        return ERASED
    first, second = read["asked"][:2]
    if read["kind"] == "search":
        return f"“{first}” in {second}"
    return f"{first}/{second}"


_KIND_OF_LANDING = {"added": "added", "updated": "changed", "removed": "removed"}
"""Change of a memory -> the change of a state that has the same sign."""


def event_rows(checkpoint: Checkpoint, snapshot: Facts, query: Query) -> Facts:
    """Return `EVENTS` lines of the log, from the number in the address; without one,
    the last ones.
    """
    run = checkpoint.run
    start = read_number(query.get("e", ""))
    if start is None:
        start = max(0, run.event_seq - EVENTS)
    events = timeline.events_after(checkpoint.run_id, start, limit=EVENTS)
    rows = around(events, protection_of(run))
    last = start
    if rows:
        last = rows[-1].seq

    at = read_number(query.get("at", ""))
    older = ""
    if start:
        earlier = max(0, start - EVENTS)
        older = url(run, at=at, tab="events", e=str(earlier))
    newer = ""
    if last < run.event_seq:
        newer = url(run, at=at, tab="events", e=str(last))
    return {
        "rows": rows,
        "count": run.event_seq,
        "older": older,
        "newer": newer,
    }


def _facts(event: RunEvent, protection: Protection) -> RunEvent:
    """Return the line of the log with a few words of its payload, and its fault if it
    does not match its seal.
    """
    event.fault = fault_of(event, protection)  # type: ignore[attr-defined]
    payload = read_or_reason(event, "payload") or {}
    # If the payload cannot be opened, `payload` is the reason, as text.
    words = payload if isinstance(payload, str) else _words(event.type, payload)
    if len(words) > LONGEST_WORDS:
        words = f"{words[:LONGEST_WORDS]}…"
    event.more = words  # type: ignore[attr-defined]
    return event


def _words(kind: str, payload: Facts) -> str:
    """Return the few words of a payload that the line shows beside the event's type."""
    if kind == "checkpoint_saved":
        return f"superstep {payload.get('superstep', '')}"
    if kind == "approval_not_needed":
        return "decided by the system"
    if kind == "task_settled":
        return "it happened" if payload.get("happened") else "it did not happen"
    if kind == REPORTED:
        return ": ".join(filter(None, _report_in_words(payload)))
    if "subject" in payload:
        return str(payload["subject"]).partition(":")[2]
    name = _NAME_OF_WORDS.get(kind, "message")
    return str(payload.get(name, ""))


def _report_in_words(payload: Facts) -> list[str]:
    """Return what a line says of an approved item: "failed", "no such account"."""
    detail = payload.get("detail")
    return [str(payload.get("result", "")), detail if isinstance(detail, str) else ""]


_NAME_OF_WORDS = {
    "gate_applied": "outcome",
    "request_settled": "outcome",
    "decision_signed": "verdict",
    "cancel_requested": "reason",
}
"""Type of an event -> the part of its payload that is shown; of others the message."""


Detail = Callable[[Checkpoint, Facts, Query], Facts]
TABS: dict[str, tuple[str, Detail]] = {
    "changed": ("What changed", changed_rows),
    "state": ("State", state_rows),
    "writes": ("Pending writes", write_rows),
    "results": ("Node results", result_rows),
    "memory": ("Memory", memory_rows),
    "events": ("Events", event_rows),
}


def tabs_of(run: Run) -> dict[str, tuple[str, Detail]]:
    """Return the tabs that a run has something for: a thread has no memory here."""
    if not is_thread(run):
        return TABS
    return {name: tab for name, tab in TABS.items() if name != "memory"}


def around(
    events_: Iterable[RunEvent],
    protection: Protection,
    *,
    people: Iterable[Any] | None = None,
) -> list[RunEvent]:
    """Return lines of the log with a few words of each, and the actors' names. One query
    for their `people`, unless the caller has read them.
    """
    lines = [_facts(event, protection) for event in events_]
    actors = [event.actor for event in lines]
    if people is None:
        names = names_of(actors)
    else:
        names = names_among(actors, people)
    for event in lines:
        event.actor = names.get(event.actor, event.actor)
    return lines
