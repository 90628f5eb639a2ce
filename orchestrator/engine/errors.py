"""The refusals, by name. All floors raise these; one place maps them to HTTP answers.

Each docstring is the sentence that people read and its cure. Facts are plain values for
machines.
"""

from collections.abc import Callable
from typing import Any, ClassVar


class CountersignError(Exception):
    """Something was refused. `code` is for machines, `message` for people, `facts` name
    the things concerned.
    """

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        return self.message


class _Named(CountersignError):
    """A refusal whose class has its code."""

    code_of_class: ClassVar[str] = "refused"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(self.code_of_class, message, **facts)


class UnknownThing(_Named):
    """No such thing here. Check the name or id; the nearest names that exist are given."""

    code_of_class = "unknown_thing"


class InvalidValue(_Named):
    """A value does not fit. Correct it at the path that is named and try again."""

    code_of_class = "invalid_value"


class InvalidGraph(_Named):
    """The graph cannot run as it is declared. Mend what is listed in its `graphs.py`."""

    code_of_class = "invalid_graph"


class WrongStatus(_Named):
    """The run's status does not allow this. Look at the run; its page names what can be
    done next.
    """

    code_of_class = "wrong_status"


class StaleLease(_Named):
    """Another worker has taken over this run. Stop; nothing more of this attempt is
    saved.
    """

    code_of_class = "stale_lease"


class StaleProposal(_Named):
    """The values that you saw have changed since. Read what moved, then decide again."""

    code_of_class = "stale_proposal"


class AlreadyDecided(_Named):
    """Others have settled this already. Nothing is left to do; `by` says who it was."""

    code_of_class = "already_decided"


class AlreadyReported(_Named):
    """Something else was reported of this item. Another result may follow, unless the
    item is done.
    """

    code_of_class = "already_reported"


class Claimed(_Named):
    """Another person has taken this review: `by` says who, and `since` when. Ask them to
    release it or to hand it over, or wait until `until`.
    """

    code_of_class = "claimed"


class DeadlinePassed(_Named):
    """Nobody decided in time, and the gate then fails its run. Resume the run: people
    are asked again, with a new deadline.
    """

    code_of_class = "deadline_passed"


class AuthorityLost(_Named):
    """The signatures on which a node would act no longer count, so it did not begin.
    Give back what was taken and resume, or fork the run from before its gate.
    """

    code_of_class = "authority_lost"


class NotAReviewer(_Named):
    """You are not among the reviewers of this request. Ask one of them, or a steward to
    reassign it.
    """

    code_of_class = "not_a_reviewer"


class ConfirmationRequired(_Named):
    """Signers here must show once more who they are. Sign on the page of the review,
    which asks for it.
    """

    code_of_class = "confirmation_required"


class NotConsidered(_Named):
    """You have not looked at it for as long as its gate asks, or not opened all of it.
    Look at each write on the page of the review, or read its request, then sign again.
    """

    code_of_class = "not_considered"


class Forbidden(_Named):
    """You may not do this. Ask an administrator for the permission that is named."""

    code_of_class = "forbidden"


class KeyConflict(_Named):
    """This key is in use for something else. Choose another key, or repeat the first
    call exactly.
    """

    code_of_class = "key_conflict"


class ConflictingWrites(_Named):
    """Two tasks replaced one channel in the same superstep. Give the channel a reducer:
    `Last`, if the later one wins.
    """

    code_of_class = "conflicting_writes"


class MissingSecrets(_Named):
    """The graph needs secrets that neither this process nor a live worker has. Put the
    values that are named into COUNTERSIGN["SECRETS"] of the workers, restart them, and
    try again.
    """

    code_of_class = "missing_secrets"


class IncompatibleGraph(_Named):
    """The run was started with another form of its graph. Migrate it, deploy the old
    version too, or fork.
    """

    code_of_class = "incompatible_graph"


class TamperedRow(_Named):
    """A stored record is not what was written. Restore it from a backup, then resume
    the run: it is verified first.
    """

    code_of_class = "tampered_row"


class WrongKey(_Named):
    """No key of the ring opens or verifies this record. Put the key with the named id
    back into the settings, then resume the run: it is verified first.
    """

    code_of_class = "wrong_key"


class OlderSeal(WrongKey):
    """Rows are sealed in the format of an older release. Run `manage.py seal_anew`
    once, then try again.
    """

    code_of_class = "older_seal"


class InvalidBundle(_Named):
    """A bundle cannot be imported: `line` and `reason` say where and why. Ask for it to
    be exported again; add the key of its installation to the trusted ones, if you trust
    it.
    """

    code_of_class = "invalid_bundle"


class PayloadTooLarge(_Named):
    """A value is larger than the limit. Store it as a file and keep its reference, or
    raise the limit in the settings.
    """

    code_of_class = "payload_too_large"


class PayloadLost(TamperedRow):
    """The bytes that a row points to are gone, cut short or changed. Put them back from
    a backup, under their name.
    """

    code_of_class = "payload_lost"


class TamperedUpload(TamperedRow):
    """The bytes of an uploaded file are not those that the run was started with. Put
    them back from a backup, then resume the run.
    """

    code_of_class = "tampered_upload"


class Erased(_Named):
    """The values that this needs have been erased, so nothing can go on from them. Its
    pages say by whom, when and why; use another run.
    """

    code_of_class = "erased"


class PayloadTaken(_Named):
    """Other bytes are kept under this name already, and what is kept never changes. Use
    a new name.
    """

    code_of_class = "payload_taken"


class PayloadsUnavailable(_Named):
    """The place where payloads are kept does not answer. Nothing is lost; try again
    when it does.
    """

    code_of_class = "payloads_unavailable"


class UnknownBackend(_Named):
    """The settings have no payload backend of this name. Put it back into
    COUNTERSIGN["PAYLOADS"] as it was.
    """

    code_of_class = "unknown_backend"


class SaveFailed(_Named):
    """A checkpoint could not be saved, and nothing of it was applied. Mend the storage
    that is named, then resume.
    """

    code_of_class = "save_failed"


class OpenTransaction(_Named):
    """Nodes were to run inside a transaction of their caller, which could undo the
    record of what they did. Call the verb after the commit, or outside the atomic
    block.
    """

    code_of_class = "open_transaction"


class MemoryConflict(_Named):
    """The memory trace was changed by another run meanwhile. The task runs again on
    what is there now.
    """

    code_of_class = "memory_conflict"


class Runaway(_Named):
    """The run went round more often than allowed. Mend the loop, or raise the limit
    named in `limit`.
    """

    code_of_class = "runaway"


class NotDone(Exception):
    """Raised by a write or external node: nothing has happened outside, so trying again
    is safe.
    """


UNREADABLE = (TamperedRow, WrongKey, PayloadsUnavailable, UnknownBackend)
"""The reasons why a record that exists cannot be read."""

BROKEN = (Exception, SystemExit, GeneratorExit)
"""The errors of an author's function that breaks: `sys.exit` in a router ends the node,
not the worker.
"""

AWAY = (PayloadsUnavailable, SaveFailed)
"""The request is right, but something that it needs does not answer now."""

# A class derived from one of these is a refusal too, so direct subclasses are enough.
REFUSALS = tuple(kind for kind in _Named.__subclasses__() if kind not in AWAY)
"""The refusals of a request, which its author can correct or repeat."""

MASKS: list[Callable[[str], str]] = []
"""Functions through which texts of authors' errors pass: only the application knows its
secrets.
"""


def text_of(error: BaseException) -> str:
    """Return the text of an error, masked; never raises, even if its `__str__` does."""
    try:
        text = str(error)
    except BROKEN:
        return "its text cannot be shown"
    for mask in MASKS:
        text = mask(text)
    return text


def described(error: BaseException) -> str:
    """Return the type and the text of an error, in a line."""
    return f"{type(error).__name__}: {text_of(error)}"
