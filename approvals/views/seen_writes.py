"""The writes that a person has on the screen of a review: noted by its script, and where
there is none, when they sign.
"""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict

from approvals.people.sightings import (
    Revision,
    SeenRevision,
    note_sightings,
    note_with_samples,
    seen_row,
    sightings_of,
    unnoted,
)
from approvals.views.composed_review import states_of
from approvals.views.decidable_writes import decidable_writes
from approvals.views.group_form import VERDICTS
from approvals.views.page import (
    opens_payloads,
    posted_from_review,
    read_number,
    single_fields,
    visible_run,
)
from approvals.views.shown_review import Review
from approvals.views.write_groups import WriteGroup
from checkpoints.models import Run

SEEN = "seen"
OPENED = "opened"
MOST = 500
"""The most revisions that one form names; others are ignored."""


@posted_from_review
@single_fields(repeated=(SEEN, OPENED))
@opens_payloads
def seen_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Note that the posted revisions are on the screen: `seen` and, of those of which
    nothing is folded, `opened`, each `<write>.<revision>`. Only newest revisions of
    writes that this person may decide now, whoever has taken them; what else is posted is ignored.
    """
    run = visible_run(request.user, ref)
    posted = _posted_revisions(request.POST)
    # A page says again what another one said before, and then nothing has to be read.
    missing = unnoted(request.user, posted)
    if missing:
        seen = _decidable(request.user, run, posted)
        note_sightings(request.user, [write for write in seen if write.key in missing])
    return HttpResponse(status=204, headers={"Cache-Control": "no-store"})


def _posted_revisions(posted: QueryDict) -> dict[Revision, bool]:
    """Return the posted revisions, each with whether nothing of it is folded."""
    revisions: dict[Revision, bool] = {}
    for name in (SEEN, OPENED):
        for text in posted.getlist(name)[:MOST]:
            revision = _revision_in(text)
            if revision is not None:
                revisions[revision] = name == OPENED
    return revisions


def _revision_in(text: str) -> Revision | None:
    write, _, number = text.partition(".")
    revision = read_number(number)
    try:
        return None if revision is None else (UUID(write), revision)
    except ValueError:
        return None


def _decidable(user: Any, run: Run, posted: dict[Revision, bool]) -> list[SeenRevision]:
    """Return those of the posted revisions that this person may decide now."""
    states = states_of(run)
    # Whoever looks while another has taken it, and signs later, has looked.
    rows = decidable_writes(user, run, states, despite_claims=True)
    seen: list[SeenRevision] = []
    for state in states:
        for row in state.writes:
            key = (row.write, row.revision)
            if key in posted and str(row.write) in rows:
                seen.append(seen_row(state.request, row, opened=posted[key]))
    return seen


def note_signed_page(request: HttpRequest, shown: Review, *, asked_for: bool) -> None:
    """Note what is on the page from which a person signs, which without scripts nothing
    has noted yet: where a gate asks for it, or everywhere else. A statement, and where a
    gate asks for it two for each group that they decide as one.
    """
    on_page = set(request.POST.getlist("write"))
    opened = set(request.POST.getlist(OPENED))
    seen: list[SeenRevision] = []
    for slip in shown.slips:
        # Of a write that was revised in the meantime, this person saw another revision.
        is_same = request.POST.get(f"h-{slip.write}") == slip.row.hash
        if slip.may and is_same and slip.write in on_page:
            of_slip = shown.standing[slip.request].request
            if ("considered" in of_slip.policy) == asked_for:
                seen.append(seen_row(of_slip, slip.row, opened=slip.write in opened))
    note_sightings(request.user, seen)
    if not asked_for:
        return
    for group in shown.groups:
        if request.POST.get(f"g-{group.id}") in VERDICTS and not group.errors:
            _note_group(request.user, shown, group)


def _note_group(user: Any, shown: Review, group: WriteGroup) -> None:
    """Note the writes of a group with its samples, if this person has seen all those."""
    of_group = shown.standing[group.lines[0].request].request
    if "considered" not in of_group.policy:
        return
    keys = [(line.row.write, line.row.revision) for line in group.samples]
    sightings = sightings_of(user, {write for write, _ in keys})
    samples = [sightings[key] for key in keys if key in sightings]
    if len(samples) < len(keys):
        return
    members = [
        (seen_row(of_group, line.row, opened=False), line.row.staged_at)
        for line in group.lines
        if line.may
    ]
    note_with_samples(user, members, samples)
