"""A slow model of the token rules, written to be read: paths are searched one by one,
circles by trying every set of joins.

It shares no code with the planner. Tokens are single things in a list; nothing is
counted or precomputed.
"""

from dataclasses import dataclass, field
from itertools import combinations
from random import Random


@dataclass
class Spec:
    """One node of a random graph; ways lead to names of nodes or END. `call`: its gate
    is asked before it runs. `asks`: people are asked for its second line. `deadline`:
    what silence at its gate does, empty without one. `auto`: its gate has a policy that
    may sign, with a `window` before it; `veto`: its gate has a veto; `whole`: what its
    gate holds is decided all or nothing. `notes`: its second line replaces the note,
    and with `needs` makes no sense without the first.
    """

    name: str
    join: str = "all"
    gated: bool = False
    call: bool = False
    asks: bool = False
    deadline: str = ""
    auto: bool = False
    window: bool = False
    veto: bool = False
    whole: bool = False
    notes: bool = False
    needs: bool = False
    plain: list[str] = field(default_factory=list)
    branch: list[str] = field(default_factory=list)
    when: dict[str, list[str]] = field(default_factory=dict)
    error: list[str] = field(default_factory=list)
    goto: list[str] = field(default_factory=list)
    sends: list[str] = field(default_factory=list)

    @property
    def skips(self) -> bool:
        """Return whether people may skip its call: only where it then leads anywhere."""
        by_outcome = self.when.get("approved") and self.when.get("partial")
        leads = self.plain or self.branch or by_outcome
        return self.call and bool(leads)


@dataclass
class Behaviour:
    """What one task does: fail, name a goto, send (target, payload)."""

    fails: bool
    goto: str | None
    sends: list[tuple[str, int]]


def behaviour(seed: int, spec: Spec, task: tuple[str, int, int]) -> Behaviour:
    """Chance that is the same for the model and the engine."""
    dice = Random(f"{seed}/{task}")
    fails = bool(spec.error) and dice.random() < 0.3
    goto = dice.choice(spec.goto) if spec.goto and dice.random() < 0.5 else None
    many = dice.randint(0, 3) if spec.sends and dice.random() < 0.6 else 0
    return Behaviour(fails, goto, [(dice.choice(spec.sends), n) for n in range(many)])


def label(seed: int, node: str, logged: int) -> str:
    """Return what a router answers when the log has this many lines."""
    return f"l{Random(f'{seed}/{node}/{logged}').randint(0, 1)}"


def passes(seed: int, entry: str) -> bool:
    """Return whether a gate lets this proposal through by itself."""
    return Random(f"{seed}/passes/{entry}").random() < 0.2


def signs(seed: int, text: str) -> bool:
    """Return whether a gate's policy signs what begins with this line."""
    return Random(f"{seed}/signs/{text}").random() < 0.5


def vetoes(seed: int, text: str, logged: int) -> bool:
    """Return whether a gate's veto keeps open what begins with this line, when the log
    has so many lines.
    """
    return Random(f"{seed}/veto/{text}/{logged}").random() < 0.5


def verdicts(
    seed: int, task: tuple[str, int, int], asked: int
) -> dict[int, str] | None:
    """Return what the reviewer says the n-th time that he is asked; None: he leaves it."""
    dice = Random(f"{seed}/{task}/{asked}")
    if dice.random() < 0.3:
        return None
    return {
        position: dice.choice(["approve", "approve", "reject"]) for position in (0, 1)
    }


def call_verdict(
    seed: int, task: tuple[str, int, int], asked: int, *, skips: bool
) -> str | None:
    """Return what the reviewer says of a call the n-th time that he is asked about it."""
    dice = Random(f"{seed}/call/{task}/{asked}")
    if dice.random() < 0.3:
        return None
    return dice.choice(["approve", "edit", "reject", "skip" if skips else "approve"])


class TimeIsUp(Exception):
    """A deadline has come that lets the run fail."""


def lets_pass(seed: int, task: tuple[str, int, int], asked: int) -> bool:
    """Return whether nobody answers before the deadline, the n-th time that they are
    asked.
    """
    dice = Random(f"{seed}/deadline/{task}/{asked}")
    return asked <= 3 and dice.random() < 0.4


def call_of(entry: str, logged: int) -> str:
    """Return what a call is prepared with, when the log has this many lines."""
    return f"{entry} prepared at {logged}"


def edited(call: str) -> str:
    """Return what a reviewer makes of a call."""
    return f"{call}, edited"


def called(call: str, entry: str, logged: int) -> str:
    """The line that a call logs: what it was called with, its task, and the state that
    it saw.
    """
    return f"{entry} called with ({call}) at {logged}"


def second_line(spec: Spec, entry: str) -> str | None:
    """Return the second line of a node, if it has any."""
    if spec.gated:
        return f"{entry} again"
    return entry if spec.notes else None


def entry_of(task: tuple[str, int, int], payload: int | None, error: str | None) -> str:
    """The line that a task logs."""
    return f"{task[0]}:{task[1]}:{task[2]} payload={payload} error={error}"


@dataclass
class Token:
    edge: str
    error: str | None = None


@dataclass
class Line:
    """One line that a gate holds: the present value of what it replaces, if it replaces
    anything; the last verdict on it with its number, and whether time gave it. `asked`:
    the policy has seen it as it is. A line without an answer waits for people.
    """

    text: str
    base: str | None = None
    is_answered: bool = True
    verdict: str = ""
    seq: int = 0
    by_deadline: bool = False
    asked: bool = False


@dataclass
class Part:
    """One task of a visit: its status, its proposal and what it wants to do; of a call
    also what it is called with, and how long the log was when it was prepared. `lines`
    are what its gate holds, and `vetoed` says how often a veto kept them open.
    """

    entry: str
    does: Behaviour
    status: str = "new"
    call: str = ""
    logged: int = 0
    lines: list[Line] = field(default_factory=list)
    vetoed: int = 0


@dataclass
class Waiting:
    """A visit that is not over, with its tasks."""

    node: str
    visit: int
    tasks: list[Part]


class Model:
    """Plays a list of `Spec`s by the rules."""

    def __init__(self, specs: list[Spec], starts: list[str], seed: int) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.order = [spec.name for spec in specs]
        self.seed = seed
        self.edges: list[
            tuple[str, str, str]
        ] = []  # (id, source, target), sends left out
        self.ways: list[tuple[str, str]] = []  # every way from node to node, sends too
        for target in starts:
            self._edge(f"START>{target}", "START", target)
        for spec in specs:
            self._declare(spec)
        for spec in specs:
            for target in spec.goto:
                self._edge(f"{spec.name}=>{target}", spec.name, target)
            self.ways += [(spec.name, target) for target in spec.sends]
        self.tokens = [
            Token(id)
            for id, source, target in self.edges
            if source == "START" and target != "END"
        ]
        self.sends: list[tuple[str, list[int]]] = []
        self.visits: dict[str, int] = {}
        self.waiting: list[Waiting] = []
        self.log: list[str] = []
        self.note = ""
        self.rejected = False
        self.gates = Gates(self)

    def _declare(self, spec: Spec) -> None:
        for target in spec.plain:
            self._edge(f"{spec.name}>{target}", spec.name, target)
        for n, target in enumerate(spec.branch):
            self._edge(f"{spec.name}>{target}?l{n}", spec.name, target)
        for outcome, targets in spec.when.items():
            for target in targets:
                self._edge(f"{spec.name}>{target}!{outcome}", spec.name, target)
        for target in spec.error:
            self._edge(f"{spec.name}>{target}!error", spec.name, target)

    def _edge(self, id: str, source: str, target: str) -> None:
        self.edges.append((id, source, target))
        self.ways.append((source, target))

    # What may start

    def target(self, token: Token) -> str:
        return next(target for id, _, target in self.edges if id == token.edge)

    def live(self) -> list[str]:
        """Every place where something is alive."""
        return [
            *(self.target(token) for token in self.tokens),
            *(visit.node for visit in self.waiting),
            *(target for target, _ in self.sends),
        ]

    def path(
        self, start: str, goal: str, avoid: str, seen: frozenset[str] = frozenset()
    ) -> bool:
        if avoid in (start, goal):
            return False
        if start == goal:
            return True
        onward = [
            target
            for source, target in self.ways
            if source == start and target not in seen
        ]
        return any(self.path(target, goal, avoid, seen | {start}) for target in onward)

    def waits_for(self, join: str) -> set[str]:
        """The live places that hold this join back."""
        full = {token.edge for token in self.tokens}
        empty = [
            source
            for id, source, target in self.edges
            if target == join and id not in full and source != "START"
        ]
        return {
            place
            for place in self.live()
            for source in empty
            if self.path(place, source, join)
        }

    def going(self) -> list[str]:
        """The join="all" nodes that start now."""
        joins = [
            n
            for n in self.order
            if self.specs[n].join == "all" and n in map(self.target, self.tokens)
        ]
        waits = {join: self.waits_for(join) for join in joins}
        free = [join for join in joins if not waits[join]]
        blocked = [join for join in joins if waits[join]]
        only_blocked = (
            set(blocked)
            - {visit.node for visit in self.waiting}
            - {target for target, _ in self.sends}
        )
        closed = [
            set(group)
            for size in range(1, len(blocked) + 1)
            for group in combinations(blocked, size)
            if all(waits[join] <= set(group) & only_blocked for join in group)
        ]
        smallest = [
            group for group in closed if not any(other < group for other in closed)
        ]
        return free + [min(group, key=self.order.index) for group in smallest]

    def start(self) -> list[tuple[tuple[str, int, int], int | None, str | None]]:
        """Take tokens and sends away and give (task, payload, error) in declared order."""
        going = self.going()
        collected: list[tuple[tuple[str, int, int], int | None, str | None]] = []
        for target, payloads in self.sends:
            visit = self._visit(target)
            collected += [
                ((target, visit, n), payload, None)
                for n, payload in enumerate(payloads)
            ]
        self.sends = []
        for node in self.order:
            if node in going:
                errors = [
                    self._take(id)
                    for id, _, target in self.edges
                    if target == node and self._holds(id)
                ]
                collected.append(
                    (
                        (node, self._visit(node), 0),
                        None,
                        next((e for e in errors if e), None),
                    )
                )
            elif self.specs[node].join == "any":
                for id in [id for id, _, target in self.edges if target == node]:
                    while self._holds(id):
                        error = self._take(id)
                        collected.append(((node, self._visit(node), 0), None, error))
        return sorted(collected, key=lambda entry: self.place(entry[0]))

    def place(self, task: tuple[str, int, int]) -> tuple[int, int, int]:
        return (self.order.index(task[0]), task[1], task[2])

    def _visit(self, node: str) -> int:
        self.visits[node] = self.visits.get(node, 0) + 1
        return self.visits[node]

    def _holds(self, edge: str) -> bool:
        return any(token.edge == edge for token in self.tokens)

    def _take(self, edge: str) -> str | None:
        token = next(token for token in self.tokens if token.edge == edge)
        self.tokens.remove(token)
        return token.error

    # What becomes of it

    def superstep(self) -> list[tuple[str, int, int]]:
        """One round: the tasks that ran."""
        # All tasks see the log as it is now, whatever the others of them add to it.
        logged = len(self.log)
        tasks = self._approved_calls()
        visits = {task[:2]: self._visit_of(task) for task in tasks}
        for task, payload, error in self.start():
            does = behaviour(self.seed, self.specs[task[0]], task)
            part = Part(entry_of(task, payload, error), does)
            visit = visits.setdefault(task[:2], Waiting(task[0], task[1], []))
            visit.tasks.append(part)
            tasks.append(task)
        tasks.sort(key=self.place)
        for task in tasks:
            part = visits[task[:2]].tasks[task[2]]
            part.status = self._perform(task, part, logged)
        self.waiting = [visit for visit in self.waiting if visit not in visits.values()]
        for node, number in sorted(visits, key=lambda key: self.place((*key, 0))):
            self._end(visits[node, number])
        gated = [
            (task, visits[task[:2]].tasks[task[2]])
            for task in tasks
            if visits[task[:2]].tasks[task[2]].status == "gated"
        ]
        self.gates.commit(gated)
        return tasks

    def _approved_calls(self) -> list[tuple[str, int, int]]:
        """The calls that were approved and have not run."""
        return [
            (visit.node, visit.visit, index)
            for visit in self.waiting
            for index, part in enumerate(visit.tasks)
            if part.status == "ready"
        ]

    def _visit_of(self, task: tuple[str, int, int]) -> Waiting:
        return next(
            visit for visit in self.waiting if (visit.node, visit.visit) == task[:2]
        )

    def _perform(self, task: tuple[str, int, int], part: Part, logged: int) -> str:
        """Run a task, or prepare its call; give its status."""
        spec = self.specs[task[0]]
        if spec.call:
            return self._perform_call(spec, part, logged)
        if part.does.fails:
            return "error"
        # Nobody but people can answer.
        if spec.gated and (spec.asks or self._holds_back(spec, part.entry, logged)):
            return "gated"
        self.write(spec, [part.entry, second_line(spec, part.entry)])
        return "approved"

    def _perform_call(self, spec: Spec, part: Part, logged: int) -> str:
        if part.status == "new":
            part.call = call_of(part.entry, logged)
            part.logged = logged
            if self._holds_back(spec, part.call, logged):
                return "gated"
        if part.does.fails:
            return "error"
        self.log.append(called(part.call, part.entry, part.logged))
        return "approved"

    def _holds_back(self, spec: Spec, text: str, logged: int) -> bool:
        """Return whether people must decide: the gate says so, or a veto of what it
        would let pass.
        """
        if not passes(self.seed, text):
            return True
        return spec.veto and vetoes(self.seed, text, logged)

    def write(self, spec: Spec, lines: list[str | None]) -> None:
        """Write the first line and the second, where there are such."""
        first, second = lines
        if first is not None:
            self.log.append(first)
        if second is not None and spec.notes:
            self.note = second
        elif second is not None:
            self.log.append(second)

    def _end(self, visit: Waiting) -> None:
        statuses = [part.status for part in visit.tasks]
        if "gated" in statuses or "ready" in statuses:
            self.waiting.append(visit)
            return
        spec = self.specs[visit.node]
        if "error" in statuses:
            first = f"{visit.node}:{visit.visit}:{statuses.index('error')}"
            self._put(
                [f"{spec.name}>{target}!error" for target in spec.error], error=first
            )
            return
        outcome = statuses[0] if len(set(statuses)) == 1 else "partial"
        kept = [part.does for part in visit.tasks if part.status != "rejected"]
        named = (
            [f"{spec.name}>{target}!{outcome}" for target in spec.when.get(outcome, [])]
            if spec.gated
            else []
        )
        goto = [does.goto for does in kept if does.goto]
        if outcome == "rejected":
            self.rejected = self.rejected or not named
            self._put(named)
        elif goto:
            self._put([f"{spec.name}=>{target}" for target in dict.fromkeys(goto)])
        else:
            self._put(
                [f"{spec.name}>{target}" for target in spec.plain]
                + named
                + self._routed(spec)
            )
        for does in kept:
            for target in dict.fromkeys(target for target, _ in does.sends):
                self.sends.append(
                    (target, [payload for to, payload in does.sends if to == target])
                )

    def _routed(self, spec: Spec) -> list[str]:
        if not spec.branch:
            return []
        chosen = label(self.seed, spec.name, len(self.log))
        return [f"{spec.name}>{spec.branch[int(chosen[1:])]}?{chosen}"]

    def _put(self, edges: list[str], *, error: str | None = None) -> None:
        ends = {id for id, _, target in self.edges if target == "END"}
        self.tokens += [Token(edge, error) for edge in edges if edge not in ends]

    def over(self) -> list[Waiting]:
        """End the visits none of whose tasks waits any more for people."""
        now = sorted(
            self.waiting, key=lambda visit: (self.order.index(visit.node), visit.visit)
        )
        self.waiting = []
        for visit in now:
            self._end(visit)
        return now

    # What is shown

    def pending(self) -> list[str]:
        return sorted({token.edge for token in self.tokens})

    def waiting_tasks(self) -> list[tuple[str, int, int]]:
        tasks = [
            (v.node, v.visit, n)
            for v in self.waiting
            for n, part in enumerate(v.tasks)
            if part.status == "gated"
        ]
        return sorted(tasks, key=self.place)

    def skipped(self) -> list[str]:
        live = self.live()
        return [
            n
            for n in self.order
            if n not in self.visits
            and not any(self.path(place, n, "") for place in live)
        ]


MOST_VETOES = 10


class Gates:
    """The gates of a model that wait, in the order in which they opened, with what each
    of those who decide has said.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.waiting: list[tuple[tuple[str, int, int], Part]] = []
        self.asked: dict[tuple[str, int, int], int] = {}
        self.seq = 0

    def commit(self, opened: list[tuple[tuple[str, int, int], Part]]) -> None:
        """Look at a new state: what stood on another note comes back, new gates open,
        and policies are asked about whatever they have not seen.
        """
        for task, part in self.waiting:
            for line in part.lines:
                moved = line.base is not None and line.base != self.model.note
                if moved and self._standing(task, part, line)[0] != "reject":
                    line.base = self.model.note
                    line.verdict = ""
                    line.asked = False
        for task, part in opened:
            part.lines = self._lines_of(task, part)
            self.waiting.append((task, part))
        for task, part in self.waiting:
            self._ask_policy(task, part)

    def _lines_of(self, task: tuple[str, int, int], part: Part) -> list[Line]:
        spec = self.model.specs[task[0]]
        if spec.call:
            return [Line(part.call)]
        second = Line(f"{part.entry} again", is_answered=not spec.asks)
        if spec.notes:
            second.base = self.model.note
        return [Line(part.entry), second]

    def _ask_policy(self, task: tuple[str, int, int], part: Part) -> None:
        """Let a policy sign what it has not seen, if it likes what may still be done."""
        if not self.model.specs[task[0]].auto:
            return
        unseen = [line for line in part.lines if line.is_answered and not line.asked]
        new = [line for line in unseen if not self._standing(task, part, line)[0]]
        possible = [
            line.text
            for line in part.lines
            if line.is_answered and self._standing(task, part, line)[0] != "reject"
        ]
        for line in new:
            line.asked = True
        if possible and signs(self.model.seed, possible[0]):
            for line in new:
                self._say(line, "approve")

    def _say(self, line: Line, verdict: str, *, by_deadline: bool = False) -> None:
        self.seq += 1
        line.verdict = verdict
        line.seq = self.seq
        line.by_deadline = by_deadline

    def _standing(
        self, task: tuple[str, int, int], part: Part, line: Line
    ) -> tuple[str, int]:
        """Return what stands of a line, and since when."""
        spec = self.model.specs[task[0]]
        rejections = [line for line in part.lines if line.verdict == "reject"]
        if line.verdict == "reject" or not rejections:
            return line.verdict, line.seq
        first = min(rejection.seq for rejection in rejections)
        needs_rejected = spec.needs and part.lines[0].verdict == "reject"
        if spec.whole or (needs_rejected and line is part.lines[1]):
            return "reject", first
        return line.verdict, line.seq

    def _standings(
        self, task: tuple[str, int, int], part: Part
    ) -> list[tuple[str, int]]:
        return [self._standing(task, part, line) for line in part.lines]

    def _is_decided(self, task: tuple[str, int, int], part: Part) -> bool:
        return all(verdict for verdict, _ in self._standings(task, part))

    def decided(self) -> bool:
        """Return whether any gate is decided and not yet applied."""
        return any(self._is_decided(task, part) for task, part in self.waiting)

    def settle(self) -> bool:
        """Apply what is decided, in the order of the last decisions. False: nothing
        could be, for vetoes keep it open.
        """
        decided = [(t, part) for t, part in self.waiting if self._is_decided(t, part)]
        decided.sort(key=lambda gate: max(seq for _, seq in self._standings(*gate)))
        note = self.model.note
        applied = [gate for gate in decided if self._apply(*gate, note)]
        self.waiting = [gate for gate in self.waiting if gate not in applied]
        self.model.over()
        self.commit([])
        return bool(applied)

    def _apply(self, task: tuple[str, int, int], part: Part, note: str) -> bool:
        spec = self.model.specs[task[0]]
        verdicts = [verdict for verdict, _ in self._standings(task, part)]
        approved = [
            line
            for line, verdict in zip(part.lines, verdicts, strict=True)
            if verdict == "approve"
        ]
        # It was decided on another note than an earlier gate has just made.
        if self.model.note != note and any(line.base is not None for line in approved):
            return False
        logged = len(self.model.log)
        is_asked = approved and spec.veto
        if is_asked and vetoes(self.model.seed, approved[0].text, logged):
            self._keep_open(task, part)
            return False
        if spec.call:
            part.status = self._apply_call(part, verdicts[0])
            return True
        lines = [line.text if line in approved else None for line in part.lines]
        self.model.write(spec, lines)
        part.status = {"approve": "approved", "reject": "rejected"}[verdicts[0]]
        if verdicts[0] != verdicts[1]:
            part.status = "partial"
        return True

    def _apply_call(self, part: Part, verdict: str) -> str:
        if verdict == "reject":
            return "rejected"
        if verdict == "skip":
            # Nothing is done, so that it names no goto and sends nothing either.
            part.does = Behaviour(False, None, [])
            return "approved"
        part.call = part.lines[0].text
        return "ready"

    def _keep_open(self, task: tuple[str, int, int], part: Part) -> None:
        """A veto: what time approved is rejected, what others approved is open."""
        part.vetoed += 1
        standings = self._standings(task, part)
        for line, (verdict, _) in zip(part.lines, standings, strict=True):
            if verdict == "reject":
                continue
            if line.by_deadline:
                self._say(line, "reject", by_deadline=True)
            else:
                line.verdict = ""

    def ask(self) -> None:
        """Ask people about everything that is open. Raises `TimeIsUp`."""
        is_open = [gate for gate in self.waiting if not self._is_decided(*gate)]
        for task, part in sorted(is_open, key=lambda gate: self.model.place(gate[0])):
            if part.vetoed < MOST_VETOES:
                self._ask(task, part)

    def _ask(self, task: tuple[str, int, int], part: Part) -> None:
        number = self.asked.get(task, 0) + 1
        self.asked[task] = number
        spec = self.model.specs[task[0]]
        is_open = [not verdict for verdict, _ in self._standings(task, part)]
        if spec.deadline and lets_pass(self.model.seed, task, number):
            self._time_out(spec, part, is_open)
            return
        if spec.call:
            said = call_verdict(self.model.seed, task, number, skips=spec.skips)
            answers = {0: said} if said else {}
        else:
            answers = verdicts(self.model.seed, task, number) or {}
        for position, verdict in answers.items():
            if is_open[position]:
                self._take(part.lines[position], verdict)

    def _take(self, line: Line, verdict: str) -> None:
        if verdict == "edit":
            line.text = edited(line.text)
        # What is new to the policy, it sees when the people's verdict comes back.
        if verdict == "edit" or (verdict == "approve" and not line.is_answered):
            line.is_answered = True
            line.asked = False
            verdict = "approve"
        self._say(line, verdict)

    def _time_out(self, spec: Spec, part: Part, is_open: list[bool]) -> None:
        """Let a deadline decide what is open."""
        if spec.deadline == "fail":
            raise TimeIsUp
        for position, line in enumerate(part.lines):
            if is_open[position]:
                # Silence answers nothing.
                is_question = spec.asks and position == 1
                verdict = "reject" if is_question else spec.deadline
                self._say(line, verdict, by_deadline=True)
