"""The types of what the API takes and answers.

Written by `python -m tests.house.client_source` from the schema of the API; what is
changed here by hand is lost.
"""

from typing import Any, Generic, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

R = TypeVar("R")


class Page(TypedDict, Generic[R]):
    """A page of a list. `next` is null on the last."""

    next: str | None
    previous: str | None
    results: list[R]

BlankEnum: TypeAlias = Literal[""]
ConfirmedByEnum: TypeAlias = Literal["password", "log-in", "passkey"]
DecisionBodyVerdictEnum: TypeAlias = Literal["approve", "reject", "edit", "skip"]
DecisionLineVerdictEnum: TypeAlias = Literal["approve", "reject", "edit", "skip", "not_needed", "veto", "no_veto", "no_auto"]
EffectEnum: TypeAlias = Literal["pure", "read", "write", "external", "human"]
EnvelopeEnum: TypeAlias = Literal["standard", "cloudevents"]
EventsEnum: TypeAlias = Literal["request.opened", "request.reminded", "request.escalated", "request.came_back", "request.reopened", "request.commented", "request.settled", "request.outcome_reported", "request.expired", "request.withdrawn", "run.stopped", "run.completed", "run.rejected", "run.failed", "run.cancelled", "run.unknown", "run.incompatible", "run.tampered", "values.erased"]
HowEnum: TypeAlias = Literal["fork", "replay", "rewind", "resume"]
KindEnum: TypeAlias = Literal["added", "removed", "changed"]
NullEnum: TypeAlias = None
OnDeadlineEnum: TypeAlias = Literal["reject", "fail"]
OutcomeBodyResultEnum: TypeAlias = Literal["done", "failed", "unknown"]
ReceiptLineResultEnum: TypeAlias = Literal["counted", "kept", "excluded", "came_back", "already"]
SourceEnum: TypeAlias = Literal["input", "superstep", "settlement", "failure", "fork", "replay", "rewind", "manual", "version"]
StatusEnum: TypeAlias = Literal["queued", "running", "paused", "waiting", "completed", "rejected", "failed", "cancelled", "unknown", "incompatible", "tampered"]
WhyEnum: TypeAlias = Literal["input", "code", "patch", "answer", "outside", "memory", "path", "follows", "unknown"]


class AddedWebhookOut(TypedDict):
    """A webhook that was just added, with its secret, which is shown this once."""
    webhook: "WebhookOut"
    secret: NotRequired[str]


class AlignOut(TypedDict):
    """Two runs beside each other. `split` is null where they share nothing; `at`:
    the states that are compared."""
    a: str
    b: str
    other_graph: bool
    split: "SplitOut | None"
    at: "SeqsOut"
    rows: list["RowOut"]
    differences: list["DifferenceOut"]
    cut_rows: bool
    cut: bool


class ApprovalLine(TypedDict):
    """An approval in a list."""
    id: str
    key: str
    state: str
    title: str
    asked_at: str


class AskBody(TypedDict):
    """A question to people about items."""
    title: str
    facts: NotRequired[list["NamedFactBody"]]
    items: list["ItemBody"]
    reviewers: list[str]
    quorum: NotRequired[int]
    reject_quorum: NotRequired[int]
    four_eyes: NotRequired[bool]
    deadline: NotRequired[str | int | None]
    on_deadline: NotRequired["OnDeadlineEnum"]
    reports: NotRequired[bool]
    key: NotRequired[str | None]
    on_behalf_of: NotRequired[str | None]
    callback: NotRequired["CallbackBody | None"]


class AskedApprovalOut(TypedDict):
    """An approval. `state` is opening, open, approved, rejected, partial, expired,
    cancelled, or the status of a run that has stopped."""
    id: str
    key: str
    state: str
    title: str
    facts: Any
    items: list["ItemOut"]
    reviewers: list[str]
    quorum: int
    reject_quorum: int
    four_eyes: bool
    deadline: str | None
    on_deadline: str
    reports: bool
    request: str | None
    asked_at: str
    started_by: str | None
    on_behalf_of: str | None
    is_own: bool


class AssignBody(TypedDict):
    """The person who gets a request: the name of an account; and what is said to
    them."""
    to: str
    comment: NotRequired[str]


class AuditLineOut(TypedDict):
    """A line with its decisions, each with the old, the proposed and the final
    value."""
    id: int
    number: int | None
    at: str
    by: str
    kind: str
    did: str
    graph: str
    run: str | None
    request: str | None
    facts: Any
    seal_key: str
    seal: str
    hash: str
    fault: "FaultOut | None"
    decisions: list["DecisionLine"]


class AuditOut(TypedDict):
    """A line of the audit log. `number` and `hash` are empty until a job has chained
    it to the one before."""
    id: int
    number: int | None
    at: str
    by: str
    kind: str
    did: str
    graph: str
    run: str | None
    request: str | None
    facts: Any
    seal_key: str
    seal: str
    hash: str
    fault: "FaultOut | None"


class BlameOut(TypedDict):
    """The checkpoint at which a path was last set. `node` and `person` are empty if
    there is none; several are separated by commas."""
    checkpoint: "PlaceOut"
    node: str
    person: str


class BulkForkBody(TypedDict):
    """Which runs to fork, from the last good checkpoint of each: those of these
    checkpoints, or those of a graph."""
    checkpoints: NotRequired[list[str]]
    graph: NotRequired[str]
    status: NotRequired[str]
    patch: NotRequired[dict[str, Any] | None]
    allow_effects: NotRequired[list[str]]
    reason: NotRequired[str]
    dry_run: NotRequired[bool]


class BulkForkOut(TypedDict):
    """A bulk fork: how far its job is."""
    id: str
    status: str
    error: str
    total: int
    forked: int
    refused: int
    waiting: int


class BulkForkResultOut(TypedDict):
    """The result for one run: its fork, or the reason that there is none. Neither
    while it waits for its turn."""
    origin: str
    checkpoint: str | None
    fork: str | None
    code: str
    message: str
    at: str | None


class BulkPlanOut(TypedDict):
    """The dry run of a bulk fork: how many of `total` runs were `examined`, and
    their plans and refusals by kind."""
    total: int
    examined: int
    others: int
    kinds: list["PlanKindOut"]
    refusals: list["RefusedOut"]


class CallbackBody(TypedDict):
    """An address, of a host that the settings allow."""
    url: str


class CallbackOut(TypedDict):
    """The callback of an approval, without its secret."""
    id: str
    url: str
    active: bool
    at: str
    deliveries: list["DeliveryOut"]


class CancelApprovalBody(TypedDict):
    """The reason for which a question is taken back."""
    reason: NotRequired[str]


class CancelBody(TypedDict):
    """Why a run is cancelled."""
    reason: NotRequired[str]


class ChangeOut(TypedDict):
    """One path that differs."""
    partition: str
    path: str
    kind: "KindEnum"
    before: Any
    after: Any
    set_by: str


class CheckpointLine(TypedDict):
    """A checkpoint in a list: metadata only."""
    id: str
    alias: str
    run: str
    graph: str
    version: str
    graph_fingerprint: str
    format_version: int
    seq: int
    superstep: int
    line: int
    source: "SourceEnum"
    parent: str | None
    created_at: str
    committed: bool
    nodes: Any
    changed: Any
    event_position: int
    took_ms: int
    stored_size: int
    state_size: int
    metadata: dict[str, Any]
    fault: "FaultOut | None"


class CheckpointOut(TypedDict):
    """One checkpoint. `skipped` is null where this process lacks the graph's
    version, `memory` where there is none."""
    id: str
    alias: str
    run: str
    graph: str
    version: str
    graph_fingerprint: str
    format_version: int
    seq: int
    superstep: int
    line: int
    source: "SourceEnum"
    parent: str | None
    created_at: str
    committed: bool
    nodes: Any
    changed: Any
    event_position: int
    took_ms: int
    stored_size: int
    state_size: int
    metadata: dict[str, Any]
    fault: "FaultOut | None"
    aliases: list[str]
    state: "StateOut"
    pending_writes: list[dict[str, Any]]
    channel_versions: dict[str, int]
    node_results: list[dict[str, Any]]
    visited: list[str]
    skipped: list[str] | None
    paused: list[str]
    pending_edges: dict[str, int]
    approvals: list[dict[str, Any]]
    memory: NotRequired[dict[str, Any] | None]
    figures: dict[str, dict[str, Any]]
    metrics: dict[str, int]
    hashes: dict[str, str]
    signature: dict[str, str] | None


class ClaimOut(TypedDict):
    """The claim on a request. `until` is null where it lasts until it is released."""
    by: str
    assigned_by: str
    at: str
    until: str | None
    exclusive: bool


class CommentBody(TypedDict):
    """A comment on a request, or on one write of it."""
    text: str
    write: NotRequired[str | None]


class CommentOut(TypedDict):
    """A comment on a request. It decides nothing, and is no part of what is signed.
    `write` is null where it is about the whole request."""
    id: str
    request: str
    write: str | None
    text: str
    by: str
    at: str
    fault: "FaultOut | None"


class DecisionBody(TypedDict):
    """One person's verdict on one write, bound to the hash of the revision they saw."""
    write: str
    hash: str
    verdict: "DecisionBodyVerdictEnum"
    value: NotRequired[Any]
    reason: NotRequired[str]


class DecisionLine(TypedDict):
    """A decision as it was made: by whom, and the old, the proposed and the final
    value."""
    id: str
    request: str | None
    receipt: str | None
    run: str
    line: int
    task: str
    write: str
    position: int
    channel: str
    revision: int
    seen_hash: str
    verdict: "DecisionLineVerdictEnum"
    old_value: Any
    proposed_value: Any
    final_value: Any
    reason: str
    by: str
    at: str
    event_seq: int
    confirmed_by: "ConfirmedByEnum | BlankEnum"
    delegator: str
    standing: "StandingOut"
    fault: "FaultOut | None"


class DecisionsBody(TypedDict):
    """One act of signing."""
    decisions: list["DecisionBody"]


class DelegationOut(TypedDict):
    """A right to review that one person passed on to another for a time."""
    id: str
    delegator: str
    delegate: str
    begins_at: str
    ends_at: str
    reason: str
    made_at: str
    revoked_at: str | None
    fault: "FaultOut | None"


class DeliveryOut(TypedDict):
    """A notice on its way to a webhook. `code` is the status that the receiver
    answered last, `error` says why it failed."""
    id: str
    event: str
    run: str | None
    request: str | None
    status: str
    attempts: int
    made_at: str
    due_at: str
    first_at: str | None
    last_at: str | None
    code: int | None
    error: str


class DiffOut(TypedDict):
    """The differences of one checkpoint from another; `against` is null if there is
    nothing before it."""
    checkpoint: str
    against: str | None
    changes: list["ChangeOut"]


class DifferenceOut(TypedDict):
    """A path that differs, its value in both, and why. `added`: there in B only,
    null in A; `removed`: in A only."""
    partition: str
    path: str
    kind: "KindEnum"
    a: Any
    b: Any
    set_at: "SeqsOut"
    reason: "ReasonOut"


class DivergedTask(TypedDict):
    """A task that went another way than in the origin. Its branch ended there, but
    for a pure or read task on other memory: that ran, and went on."""
    task: str
    why: str
    path: NotRequired[str | None]


class EffectOut(TypedDict):
    """The end of one node after a decided request."""
    node: str
    effect: str
    status: str
    counts: dict[str, int]
    at: str | None
    error: str
    is_sound: bool


class EraseBody(TypedDict):
    """Which values are erased: all of the run, or those at `paths`. With `dry_run`
    nothing is."""
    confirm: NotRequired[str]
    paths: NotRequired[list[str] | None]
    forks: NotRequired[bool]
    reason: NotRequired[str]
    dry_run: NotRequired[bool]


class ErasureOut(TypedDict):
    """The record of an erasure, never with an erased value. `rows` is their number."""
    id: str
    run: str
    by: str
    at: str
    reason: str
    paths: Any
    inherited: Any
    kept_files: Any
    rows: int
    ended_at: str | None


class EventOut(TypedDict):
    """A line of a run's log."""
    seq: int
    type: str
    at: str
    node: str
    task: str
    actor: str
    payload: dict[str, Any]
    hash: str
    fault: "FaultOut | None"


class FaultOut(TypedDict):
    """The reason why a row does not verify: `tampered_row`, or `wrong_key` where it
    cannot be verified now."""
    code: str
    row: str
    reason: str


class FigureSum(TypedDict):
    """A sum of figures of one name. `day` and `run` are null where sums are not
    grouped by them."""
    day: str | None
    graph: str
    run: str | None
    name: str
    sum: str


class ForkBody(TypedDict):
    """A fork: without `start` it is paused until it is resumed."""
    patch: NotRequired[dict[str, Any] | None]
    allow_effects: NotRequired[list[str]]
    reason: NotRequired[str]
    answers: NotRequired[dict[str, Any] | None]
    key: NotRequired[str | None]
    start: NotRequired[bool]


class GateOut(TypedDict):
    """The figures of one gate. Shares are of the decisions of people, from 0 to 1;
    null where there are no decisions to count. They and `seconds` are null where
    fewer than five people have signed."""
    graph: str
    gate: str
    requests: int
    decided: int
    seconds: float | None
    overdue: int
    quick: float | None
    edited: float | None
    rejected: float | None


class GatesOut(TypedDict):
    """The figures of gates. `of_newest`: only so many of the newest requests were
    looked at; null where these were all."""
    of_newest: int | None
    gates: list["GateOut"]


class GraphLine(TypedDict):
    """A graph in the catalogue: its current version."""
    name: str
    version: str
    fingerprint: str
    doc: str
    warnings: list[str]


class GraphOut(TypedDict):
    """One graph: what it takes, what it holds, how it goes."""
    name: str
    version: str
    fingerprint: str
    doc: str
    warnings: list[str]
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    input_schema: dict[str, Any]
    state_schema: dict[str, Any]
    mermaid: str


class HistoryOut(TypedDict):
    """The changes of a path, oldest first. `before` continues with older changes;
    null if there are none."""
    path: str
    changes: list["PathChangeOut"]
    before: int | None


class HowBody(TypedDict):
    """A plan that is asked for."""
    patch: NotRequired[dict[str, Any] | None]
    answers: NotRequired[dict[str, Any] | None]
    allow_effects: NotRequired[list[str]]
    how: NotRequired["HowEnum"]


class ImportBody(TypedDict):
    """A form with one bundle."""
    file: str


class ImportedFrom(TypedDict):
    """The bundle that an imported run came from: its key there, who signed it and
    when, and who took it in."""
    fault: "FaultOut | None"
    key: str
    signer: str
    signer_name: str
    exported_at: str
    by: str | None
    at: str


class ItemBody(TypedDict):
    """A value that people decide on."""
    id: str
    value: Any | None
    label: NotRequired[str]
    schema: NotRequired[Any | None]
    effect: NotRequired["EffectEnum | NullEnum"]


class ItemDecisionOut(TypedDict):
    """A decision on an item. Its id leads to its receipt."""
    verdict: str
    by: str
    delegator: str
    at: str
    revision: int
    reason: str
    id: str


class ItemOut(TypedDict):
    """An item as it stands. `value` is what was signed once `verdict` is approved."""
    id: str
    label: str
    effect: str | None
    schema: Any | None
    proposed: Any | None
    value: Any | None
    hash: str
    write: str | None
    verdict: str
    edited: bool
    reason: str
    decisions: list["ItemDecisionOut"]
    outcome: "OutcomeOut | None"


class LineageOut(TypedDict):
    """The tree of a run, each run after the one that it came from. `path` leads to
    the run; `cut`: there are more."""
    path: list[str]
    runs: list["RelativeOut"]
    cut: bool


class MayDecide(TypedDict):
    """The answer to whether the caller may sign, with the reason where not."""
    yes: bool
    why_not: str


class MessageOut(TypedDict):
    """The outcome of a message."""
    status: str


class NamedFactBody(TypedDict):
    """A figure worth showing beside the items."""
    label: str
    value: Any | None


class NewApprovalOut(TypedDict):
    """An approval that was asked for. The secret of its callback is shown in the
    first answer alone."""
    id: str
    key: str
    state: str
    title: str
    facts: Any
    items: list["ItemOut"]
    reviewers: list[str]
    quorum: int
    reject_quorum: int
    four_eyes: bool
    deadline: str | None
    on_deadline: str
    reports: bool
    request: str | None
    asked_at: str
    started_by: str | None
    on_behalf_of: str | None
    is_own: bool
    callback_secret: NotRequired[str]


class NoticeOut(TypedDict):
    """A notice of the caller. If they may no longer see its run, it has no ids,
    `event` and `outcome` are empty, and `visible` is false. What came later has
    the higher `number`."""
    number: int
    event: str
    visible: bool
    run: str | None
    request: str | None
    outcome: str
    at: str
    read_at: str | None


class OutcomeBody(TypedDict):
    """The outcome of one approved item."""
    item: str
    result: "OutcomeBodyResultEnum"
    detail: NotRequired[str]
    hash: str


class OutcomeOut(TypedDict):
    """The outcome of an item, as the caller reported it."""
    result: str
    detail: str
    at: str
    by: str


class OutcomesBody(TypedDict):
    """The outcomes of approved items."""
    outcomes: list["OutcomeBody"]


class PathChangeOut(TypedDict):
    """One checkpoint that changed a path."""
    checkpoint: "PlaceOut"
    kind: "KindEnum"
    before: Any
    after: Any
    node: str
    person: str


class PlaceOut(TypedDict):
    """A checkpoint of some run, by name."""
    checkpoint: str
    alias: str
    run: str
    seq: int
    line: int
    made_by: dict[str, Any]
    created_at: str


class PlanKindOut(TypedDict):
    """Runs whose plans have the same lists; the plan is that of the first example."""
    count: int
    examples: list[str]
    plan: "PlanOut"


class PlanOut(TypedDict):
    """The plan of going on. Nothing happens that it does not list."""
    how: str
    checkpoint: str
    needs_yes: list[str]
    runs: list["PlannedTask"]
    may_run: list["PlannedTask"]
    reused: list["PlannedTask"]
    effects_again: list["PlannedTask"]
    may_have_happened: list["PlannedTask"]
    asks: list["PlannedTask"]
    patched: list[str]
    guarded: dict[str, str]


class PlannedTask(TypedDict):
    """A task in a list of a plan."""
    task: str
    node: str
    why: str


class ProblemOut(TypedDict):
    """A refusal as problem details (RFC 9457). Further members are facts of this
    code."""
    type: str
    title: str
    status: int
    code: str
    detail: str


class ReadNoticesBody(TypedDict):
    """The number of the newest notice that was read; all older ones are read too."""
    until: int


class ReasonOut(TypedDict):
    """Why a value differs, the nodes, and the run (a, b) where it was in one only;
    and all of it in words."""
    why: "WhyEnum"
    nodes: list[str]
    run: str
    text: str


class ReceiptLine(TypedDict):
    """The result of one posted decision."""
    write: str
    label: str
    revision: int
    hash: str
    verdict: str
    result: "ReceiptLineResultEnum"
    why: NotRequired[str]
    by: NotRequired[list[str]]
    settled: NotRequired[str]
    signatures: NotRequired[int]
    needed: NotRequired[int]
    delegator: NotRequired[str]


class ReceiptOut(TypedDict):
    """The results of one signing."""
    id: str
    run: str
    by: str
    at: str
    lines: list["ReceiptLine"]


class RefusedOut(TypedDict):
    """Runs that would be refused for the same reason."""
    count: int
    examples: list[str]
    code: str
    message: str


class RelativeOut(TypedDict):
    """A run in a tree: which run it came of, and how: fork, replay or child; null
    and empty for the first."""
    run: str
    key: str
    label: str
    graph: str
    status: str
    of: str | None
    how: str
    seq: int | None
    checkpoint: str | None
    task: str
    fault: "FaultOut | None"


class ReopenBody(TypedDict):
    """Why a request is re-opened: kept in the log."""
    reason: str


class ReopeningOut(TypedDict):
    """The differences between the policy of a request and that of its graph now."""
    changes: list[str]


class ReplayBody(TypedDict):
    """Why a run is replayed."""
    reason: NotRequired[str]


class ReplayOrigin(TypedDict):
    """The origin of a replay."""
    run: str
    checkpoint: str


class ReplayOut(TypedDict):
    """The report of a replay."""
    run: str
    origin: "ReplayOrigin"
    status: str
    reused: list[str]
    diverged: list["DivergedTask"]


class RequestLine(TypedDict):
    """A request in a list."""
    id: str
    run: str
    run_key: str
    run_status: str
    graph: str
    line: int
    node: str
    visit: int
    index: int
    kind: str
    title: str
    reviewers: list[str]
    quorum: int
    deadline: str | None
    on_deadline: str
    tiers: list["TierOut"]
    status: str
    outcome: str
    writes: int
    opened_at: str
    settled_at: str | None
    claim: "ClaimOut | None"
    fault: "FaultOut | None"


class RequestOut(TypedDict):
    """One request with its writes."""
    id: str
    run: str
    run_key: str
    run_status: str
    graph: str
    line: int
    node: str
    visit: int
    index: int
    kind: str
    title: str
    reviewers: list[str]
    quorum: int
    deadline: str | None
    on_deadline: str
    tiers: list["TierOut"]
    status: str
    outcome: str
    writes: list["WriteOut"]
    opened_at: str
    settled_at: str | None
    claim: "ClaimOut | None"
    fault: "FaultOut | None"
    ordinal: int
    input_hash: str
    prepared_from: str | None
    facts: list[dict[str, Any]]
    why: str
    policy: Any
    may_decide: "MayDecide"
    came_of_it: list["EffectOut"]


class ResumeBody(TypedDict):
    """A resume; with a patch it goes on from the newest checkpoint on a new line."""
    patch: NotRequired[dict[str, Any] | None]
    allow_effects: NotRequired[list[str]]
    reason: NotRequired[str]


class RewindBody(TypedDict):
    """A rewind, and why."""
    checkpoint: str
    patch: NotRequired[dict[str, Any] | None]
    allow_effects: NotRequired[list[str]]
    reason: str
    answers: NotRequired[dict[str, Any] | None]


class RowOut(TypedDict):
    """Checkpoints side by side; null where one run has nothing there."""
    a: "PlaceOut | None"
    b: "PlaceOut | None"


class RunLine(TypedDict):
    """A run in a list: columns only."""
    id: str
    key: str
    graph: str
    version: str
    fingerprint: str
    label: str
    facts: dict[str, Any]
    status: "StatusEnum"
    line: int
    superstep: int
    head: str | None
    head_seq: int
    event_seq: int
    decisions: int
    durable: bool
    imported: bool
    at_node: str
    tape: str
    error_code: str
    progress: dict[str, Any] | None
    priority: int
    due_at: str | None
    cancel_at: str | None
    started_by: str | None
    on_behalf_of: str | None
    parent_run: str | None
    parent_line: int
    parent_task: str
    origin_checkpoint: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None


class RunOut(TypedDict):
    """One run, with its input, why it stopped, what it waits for, and what must be
    settled. `needs_yes`: the nodes that do not start without a yes;
    `stopped_before`: those of them that would start now. Null: its line does not
    verify."""
    id: str
    key: str
    graph: str
    version: str
    fingerprint: str
    label: str
    facts: dict[str, Any]
    status: "StatusEnum"
    line: int
    superstep: int
    head: str | None
    head_seq: int
    event_seq: int
    decisions: int
    durable: bool
    imported: bool
    at_node: str
    tape: str
    error_code: str
    progress: dict[str, Any] | None
    priority: int
    due_at: str | None
    cancel_at: str | None
    started_by: str | None
    on_behalf_of: str | None
    parent_run: str | None
    parent_line: int
    parent_task: str
    origin_checkpoint: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    input: dict[str, Any]
    error: dict[str, Any] | None
    paused: list[dict[str, Any]]
    unknown: list[dict[str, Any]]
    needs_yes: list[str] | None
    stopped_before: list[str] | None
    imported_from: "ImportedFrom | None"
    metadata: dict[str, Any]
    figures: dict[str, str]
    fault: "FaultOut | None"


class SeqsOut(TypedDict):
    """A number of each run, or null."""
    a: int | None
    b: int | None


class SettleBody(TypedDict):
    """The body that settles an unknown outcome."""
    task: str
    happened: bool
    output: NotRequired[Any | None]
    reason: str
    accept_risk: NotRequired[bool]


class SharedOut(TypedDict):
    """The last checkpoint that both share, as one of them has it; of a fork, of the
    run that it comes from."""
    run: str
    seq: int


class SplitOut(TypedDict):
    """The last checkpoint that both share."""
    a: "SharedOut"
    b: "SharedOut"


class StandingOut(TypedDict):
    """The standing policy that signed a decision, with its limits of then."""
    id: NotRequired[str]
    number: NotRequired[int]
    by: NotRequired[str]
    limits: NotRequired[dict[str, dict[str, str]]]
    begins: NotRequired[str]
    ends: NotRequired[str]


class StandingPolicyOut(TypedDict):
    """A policy with which a person allows a gate to sign by itself: its limits, its
    end, and how many of how many writes it has signed."""
    id: str
    number: int
    by: str
    graph: str
    gate: str
    limits: dict[str, dict[str, str]]
    begins_at: str
    ends_at: str
    most_uses: int
    uses: int
    reason: str
    made_at: str
    revoked_at: str | None
    fault: "FaultOut | None"


class StartBody(TypedDict):
    """The body that starts a run."""
    graph: str
    input: Any
    key: NotRequired[str | None]
    on_behalf_of: NotRequired[str | None]
    resume_failed: NotRequired[bool]
    restart: NotRequired[bool]
    allow_effects: NotRequired[list[str]]
    priority: NotRequired[int]
    due_at: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any] | None]


class StateOut(TypedDict):
    """The state by partition."""
    input: Any
    scratch: Any
    artifacts: Any
    diagnostics: Any


class TierOut(TypedDict):
    """A tier of a request: what it does while people have not decided."""
    after: int
    act: str
    to: list[str] | None
    acted_at: str | None


class UnreadOut(TypedDict):
    """How many notices are unread; 100 stands for more than 99."""
    unread: int


class UploadBody(TypedDict):
    """A form with one file."""
    file: str


class UploadOut(TypedDict):
    """A reference that an input can carry."""
    file: str
    name: str
    size: int
    sha256: str


class VerdictOut(TypedDict):
    """A decision beside its write."""
    verdict: str
    by: str
    delegator: str
    at: str
    revision: int
    reason: str


class WebhookBody(TypedDict):
    """A new webhook."""
    url: str
    events: NotRequired[list["EventsEnum"]]
    graphs: NotRequired[list[str]]
    envelope: NotRequired["EnvelopeEnum"]


class WebhookOut(TypedDict):
    """A webhook, without its secret."""
    id: str
    url: str
    events: list[str]
    graphs: list[str]
    envelope: str
    active: bool
    at: str


class WriteOut(TypedDict):
    """A pending write as it is decided. `settled` is approved, rejected or empty."""
    id: str
    task: str
    position: int
    channel: str
    label: str
    value: Any
    current: Any
    bound: bool
    shows: Any
    shown: Any
    unanswered: bool
    revision: int
    staged_at: str
    hash: str
    settled: str
    window_end: str | None
    rejected_with: str | None
    verdicts: list["VerdictOut"]
    why_not: str
