"""The decisions on one request, built write by write before they are sent as one act.

A write that is not pending is refused where it is named, not by the server afterwards.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self
from uuid import UUID

from orchestrator.engine.errors import (
    AlreadyDecided,
    InvalidValue,
    NotAReviewer,
    UnknownThing,
)
from orchestrator.engine.gates.verdicts import NOT_SKIPPABLE
from orchestrator.engine.graphs.question import NOT_ANSWERED, is_unanswered

Json = Mapping[str, Any]
_UNSET = object()


class DecisionSet:
    """The decisions on a request, as `GET requests/{id}/` shows it.

        decisions = DecisionSet(request)
        decisions.approve(payout).reject(letter, reason="wrong address")
        client.post(f"requests/{request['id']}/decisions/", json=decisions.body)

    Each verdict is bound to the hash of what the request showed. A write that gets a
    second verdict has that one.
    """

    def __init__(self, request: Json) -> None:
        self.request = request
        self._writes: dict[str, Json] = {}
        for write in request["writes"]:
            self._writes[str(write["id"])] = write
        self._decisions: dict[str, dict[str, Any]] = {}

    def approve(self, *writes: UUID | str) -> Self:
        """Approve these writes. Raises `UnknownThing` for one that the request has not,
        `AlreadyDecided` for one that is settled, and `NotAReviewer` for one that the
        caller may not decide; `InvalidValue` for a question that nobody has answered.
        """
        for write in writes:
            if is_unanswered(self._pending(write).get("shown") or {}):
                raise InvalidValue(f"write {write}: {NOT_ANSWERED}", path="verdict")
        return self._decide("approve", writes)

    def reject(self, *writes: UUID | str, reason: str = "") -> Self:
        """Reject these writes. Raises as `approve`; `InvalidValue` where one of them
        needs a reason and there is none.
        """
        for write in writes:
            shown = self._pending(write).get("shown") or {}
            if shown.get("reason_required") and not reason.strip():
                raise InvalidValue(
                    f"a rejection of write {write} needs a reason", path="reason"
                )
        return self._decide("reject", writes, reason=reason)

    def skip(self, *writes: UUID | str, reason: str = "") -> Self:
        """Skip these calls: the run continues without them. Raises as `approve` does,
        and `InvalidValue` if the gate does not allow it.
        """
        if not self.request["policy"].get("skip"):
            raise InvalidValue(NOT_SKIPPABLE, path="verdict")
        return self._decide("skip", writes, reason=reason)

    def edit(self, write: UUID | str, value: Any, *, reason: str = "") -> Self:
        """Approve this write with another value, JSON, or answer what it asks. Raises as
        `without`.
        """
        return self._decide("edit", [write], reason=reason, value=value)

    def without(self, *writes: UUID | str) -> Self:
        """Take back the verdicts on these writes. Raises as `approve`."""
        for write in writes:
            self._pending(write)
            self._decisions.pop(str(write), None)
        return self

    @property
    def undecided(self) -> list[str]:
        """The ids of pending writes that have no verdict yet, in order of position."""
        return [
            id
            for id, write in self._writes.items()
            if not write["settled"] and id not in self._decisions
        ]

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The decisions as `reviews.sign` takes them: [{write, hash, verdict, reason?,
        value?}]. Raises `InvalidValue` if nothing was decided.
        """
        if not self._decisions:
            raise InvalidValue(
                f"nothing was decided on request {self.request['id']}: approve, edit, "
                "reject or skip a write first",
                path="decisions",
            )
        return list(self._decisions.values())

    @property
    def body(self) -> dict[str, Any]:
        """The body to post to `requests/{id}/decisions/`. Raises as `decisions`."""
        return {"decisions": self.decisions}

    def _decide(
        self,
        verdict: str,
        writes: Iterable[UUID | str],
        *,
        reason: str = "",
        value: Any = _UNSET,
    ) -> Self:
        # All of them are looked at first: a refusal leaves the set as it was.
        pending = [self._pending(write) for write in writes]
        for write in pending:
            id = str(write["id"])
            decision = {"write": id, "hash": write["hash"], "verdict": verdict}
            if reason:
                decision["reason"] = reason
            if value is not _UNSET:
                decision["value"] = value
            # It goes where the newest verdict belongs: at the end.
            self._decisions.pop(id, None)
            self._decisions[id] = decision
        return self

    def _pending(self, write: UUID | str) -> Json:
        """Return a write of the request that can be decided."""
        row = self._writes.get(str(write))
        request = self.request["id"]
        if row is None:
            raise UnknownThing(
                f"request {request} has no write {write}; it has "
                f"{', '.join(self._writes) or 'none'}",
                write=str(write),
            )
        if row["settled"]:
            by = [verdict["by"] for verdict in row.get("verdicts", ())]
            raise AlreadyDecided(
                f"write {write} of request {request} is {row['settled']} already",
                write=str(write),
                by=by,
            )
        if row.get("why_not"):
            raise NotAReviewer(row["why_not"], write=str(write))
        return row
