"""How a node is tried again, and how often a graph keeps its checkpoints. Values only; the executor sleeps."""

from dataclasses import dataclass

from orchestrator.engine.errors import NotDone
from orchestrator.engine.hints import explained_class


@explained_class
@dataclass(frozen=True, slots=True)
class Retry:
    """Try up to `attempts` times. The pause before attempt n+1 is `backoff` seconds times `factor`^(n-1), give or
    take the share `jitter` of it. `on` names the exceptions that are worth another attempt.
    """

    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    jitter: float = 0.1
    on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        named = self.on if isinstance(self.on, tuple | list) else (self.on,)
        object.__setattr__(self, "on", tuple(named))

    def covers(self, error: BaseException) -> bool:
        """Whether an attempt that ended with this error is worth another one."""
        return isinstance(error, (NotDone, *self.on))

    def faults(self) -> list[str]:
        """What is wrong with the figures."""
        found = []
        if not isinstance(self.attempts, int) or self.attempts < 1:
            found.append("Retry(attempts) must be a whole number from 1")
        if self.backoff < 0 or self.factor < 0 or not 0 <= self.jitter <= 1:
            found.append("Retry(backoff, factor) must not be negative, jitter lies between 0 and 1")
        if not all(isinstance(one, type) and issubclass(one, BaseException) for one in self.on):
            found.append("Retry(on) must name exception classes")
        return found


@dataclass(frozen=True, slots=True)
class Interval:
    """Keep the checkpoint of every n-th superstep. 0 means manual: only where a node asks with `ctx.checkpoint()`."""

    n: int
