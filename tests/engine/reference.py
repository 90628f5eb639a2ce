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
    what silence at its gate does, empty without one.
    """

    name: str
    join: str = "all"
    gated: bool = False
    call: bool = False
    asks: bool = False
    deadline: str = ""
    plain: list[str] = field(default_factory=list)
    branch: list[str] = field(default_factory=list)
    when: dict[str, list[str]] = field(default_factory=dict)
    error: list[str] = field(default_factory=list)
    goto: list[str] = field(default_factory=list)
    sends: list[str] = field(default_factory=list)

    @property
    def skips(self) -> bool:
        """Whether people may skip its call: only where it then leads anywhere."""
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
    """What a router answers when the log has this many lines."""
    return f"l{Random(f'{seed}/{node}/{logged}').randint(0, 1)}"


def passes(seed: int, entry: str) -> bool:
    """Whether a gate lets this proposal through by itself."""
    return Random(f"{seed}/passes/{entry}").random() < 0.2


def verdicts(
    seed: int, task: tuple[str, int, int], asked: int
) -> dict[int, str] | None:
    """What the reviewer says the n-th time that he is asked; None: he leaves it."""
    dice = Random(f"{seed}/{task}/{asked}")
    if dice.random() < 0.3:
        return None
    return {
        position: dice.choice(["approve", "approve", "reject"]) for position in (0, 1)
    }


def call_verdict(
    seed: int, task: tuple[str, int, int], asked: int, *, skips: bool
) -> str | None:
    """What the reviewer says of a call the n-th time that he is asked about it."""
    dice = Random(f"{seed}/call/{task}/{asked}")
    if dice.random() < 0.3:
        return None
    return dice.choice(["approve", "edit", "reject", "skip" if skips else "approve"])


class TimeIsUp(Exception):
    """A deadline has come that lets the run fail."""


def lets_pass(seed: int, task: tuple[str, int, int], asked: int) -> bool:
    """Whether nobody answers before the deadline, the n-th time that they are asked."""
    dice = Random(f"{seed}/deadline/{task}/{asked}")
    return asked <= 3 and dice.random() < 0.4


def call_of(entry: str, logged: int) -> str:
    """What a call is prepared with, when the log has this many lines."""
    return f"{entry} prepared at {logged}"


def edited(call: str) -> str:
    """What a reviewer makes of a call."""
    return f"{call}, edited"


def called(call: str, entry: str, logged: int) -> str:
    """The line that a call logs: what it was called with, its task, and the state that
    it saw.
    """
    return f"{entry} called with ({call}) at {logged}"


def entry_of(task: tuple[str, int, int], payload: int | None, error: str | None) -> str:
    """The line that a task logs."""
    return f"{task[0]}:{task[1]}:{task[2]} payload={payload} error={error}"


@dataclass
class Token:
    edge: str
    error: str | None = None


@dataclass
class Part:
    """One task of a visit: its status, its proposal and what it wants to do; of a call
    also what it is called with, and how long the log was when it was prepared.
    """

    entry: str
    does: Behaviour
    status: str = "new"
    call: str = ""
    logged: int = 0


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
        self.asked: dict[tuple[str, int, int], int] = {}
        self.log: list[str] = []
        self.rejected = False

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
        found: list[tuple[tuple[str, int, int], int | None, str | None]] = []
        for target, payloads in self.sends:
            visit = self._visit(target)
            found += [
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
                found.append(
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
                        found.append(((node, self._visit(node), 0), None, error))
        return sorted(found, key=lambda one: self._place(one[0]))

    def _place(self, task: tuple[str, int, int]) -> tuple[int, int, int]:
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
        tasks.sort(key=self._place)
        for task in tasks:
            part = visits[task[:2]].tasks[task[2]]
            part.status = self._perform(task, part, logged)
        self.waiting = [visit for visit in self.waiting if visit not in visits.values()]
        for node, number in sorted(visits, key=lambda key: self._place((*key, 0))):
            self._end(visits[node, number])
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
            if part.status == "new":
                part.call = call_of(part.entry, logged)
                part.logged = logged
                if not passes(self.seed, part.call):
                    return "gated"
            if part.does.fails:
                return "error"
            self.log.append(called(part.call, part.entry, part.logged))
            return "approved"
        if part.does.fails:
            return "error"
        # Nobody but people can answer.
        if spec.gated and (spec.asks or not passes(self.seed, part.entry)):
            return "gated"
        again = [part.entry + " again"] if spec.gated else []
        self.log += [part.entry, *again]
        return "approved"

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

    def settlement(self) -> bool:
        """Ask about everything that waits; apply what was decided. False: nothing was.
        Raises `TimeIsUp`.
        """
        now = sorted(
            self.waiting, key=lambda visit: (self.order.index(visit.node), visit.visit)
        )
        answered = False
        for visit in now:
            for index, part in enumerate(visit.tasks):
                if part.status == "gated":
                    decided = self._ask((visit.node, visit.visit, index), part)
                    part.status = decided or "gated"
                    answered = answered or decided is not None
        self.waiting = []
        for visit in now:
            self._end(visit)
        return answered

    def _ask(self, task: tuple[str, int, int], part: Part) -> str | None:
        self.asked[task] = self.asked.get(task, 0) + 1
        spec = self.specs[task[0]]
        if spec.deadline and lets_pass(self.seed, task, self.asked[task]):
            return self._time_out(spec, part)
        if spec.call:
            return self._ask_about_call(task, part)
        answer = verdicts(self.seed, task, self.asked[task])
        if answer is None:
            return None
        self.log += [
            line
            for n, line in enumerate([part.entry, part.entry + " again"])
            if answer[n] == "approve"
        ]
        content = set(answer.values())
        return (
            "approved"
            if content == {"approve"}
            else "rejected"
            if content == {"reject"}
            else "partial"
        )

    def _time_out(self, spec: Spec, part: Part) -> str:
        """Let a deadline decide what is open."""
        if spec.deadline == "fail":
            raise TimeIsUp
        if spec.deadline == "reject":
            return "rejected"
        if spec.asks:
            # Silence answers nothing.
            self.log.append(part.entry)
            return "partial"
        self.log += [part.entry, part.entry + " again"]
        return "approved"

    def _ask_about_call(self, task: tuple[str, int, int], part: Part) -> str | None:
        """Ask before a node runs: approved, its task goes on in the next superstep."""
        skips = self.specs[task[0]].skips
        verdict = call_verdict(self.seed, task, self.asked[task], skips=skips)
        if verdict is None:
            return None
        if verdict == "reject":
            return "rejected"
        if verdict == "skip":
            # Nothing is done, so that it names no goto and sends nothing either.
            part.does = Behaviour(False, None, [])
            return "approved"
        if verdict == "edit":
            part.call = edited(part.call)
        return "ready"

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
        return sorted(tasks, key=self._place)

    def skipped(self) -> list[str]:
        live = self.live()
        return [
            n
            for n in self.order
            if n not in self.visits
            and not any(self.path(place, n, "") for place in live)
        ]
