"""The policies of retries and of checkpoint intervals. Values only; the executor
sleeps.
"""

from dataclasses import dataclass

from orchestrator.engine.errors import NotDone
from orchestrator.engine.values.hints import explained_class
from orchestrator.engine.values.numbers import is_number, is_whole


@explained_class
@dataclass(frozen=True, slots=True)
class Retry:
    """Try up to `attempts` times. The pause before attempt n+1 is `backoff` seconds
    times `factor`^(n-1), give or take the share `jitter` of it. `on` names the
    exceptions that are worth another attempt.
    """

    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    jitter: float = 0.1
    on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        # A single exception may be written without brackets.
        errors = self.on if isinstance(self.on, tuple | list) else (self.on,)
        object.__setattr__(self, "on", tuple(errors))

    def covers(self, error: BaseException) -> bool:
        """Return whether an attempt that ended with this error is worth another one."""
        return isinstance(error, (NotDone, *self.on))

    def faults(self) -> list[str]:
        """Return the faults of the figures and exceptions."""
        faults: list[str] = []
        if not is_whole(self.attempts):
            faults.append("Retry(attempts) must be a whole number from 1")
        figures = (self.backoff, self.factor, self.jitter)
        if not all(is_number(figure) and figure >= 0 for figure in figures):
            faults.append("Retry(backoff, factor, jitter) must be numbers from 0")
        elif self.jitter > 1:
            faults.append("Retry(jitter) lies between 0 and 1")
        for error in self.on:
            if not isinstance(error, type) or not issubclass(error, BaseException):
                faults.append("Retry(on) must name exception classes")
                break
        return faults


@dataclass(frozen=True, slots=True)
class Interval:
    """Keep the checkpoint of every n-th superstep. 0 means manual: only if a node asks
    for it by `ctx.checkpoint()`.
    """

    n: int
