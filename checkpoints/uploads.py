"""Files that inputs refer to: bytes in Django's default storage, a row each, and a reference in the input.

The start form, the API and `start_run --file` save uploads here; `runs.start` checks references; nodes open them.
A reference is {file, name, size, sha256}, `file` being the upload's id. No path ever stands in an input.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import IO, Any, Protocol, cast
from uuid import UUID

from django.core.files import File
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.core.ids import uuid7
from checkpoints.models import Upload, UploadReference
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge, TamperedUpload, UnknownThing

_CHUNK = 1024 * 1024
_MEMBERS = frozenset({"file", "name", "size", "sha256"})


class Readable(Protocol):
    """An open file, as far as it matters here."""

    def read(self, size: int = ..., /) -> bytes: ...


class Writable(Protocol):
    """Where bytes can be put."""

    def write(self, data: bytes, /) -> int: ...


def save_upload(file: Readable, *, name: str, by: Any) -> dict[str, Any]:
    """Copy an open binary file into storage and give the reference to it. `by` None means the system.

    `name` is shown to people; of a path only its last part is kept. Raises `PayloadTooLarge`, `InvalidValue`.
    """
    checked_text(name, "name", most=10_000)
    if by is not None:
        checked_person(by, "by")
    shown = PurePath(name.replace("\\", "/")).name[:255] or "file"
    upload = Upload(id=uuid7(), name=shown, by=by, at=timezone.now())
    # What was hashed is what is stored, also where somebody writes to the source meanwhile.
    with tempfile.SpooledTemporaryFile(max_size=_CHUNK) as copy:
        most = conf().max_upload_bytes
        upload.size, upload.sha256 = _copied(file, copy, most=most)
        if upload.size > most:
            raise PayloadTooLarge(f"the file is larger than {most} bytes", most=most)
        copy.seek(0)
        upload.stored_as = default_storage.save(f"uploads/{upload.id}", File(copy, name=str(upload.id)))
    upload.save(force_insert=True)
    return ref_of(upload)


def _copied(source: Readable, target: Writable, *, most: int) -> tuple[int, str]:
    """Copy, and give size and SHA-256 of what was read: no more than the chunk that goes beyond `most` bytes."""
    size, digest = 0, hashlib.sha256()
    while size <= most and (chunk := source.read(_CHUNK)):
        size += len(chunk)
        digest.update(chunk)
        target.write(chunk)
    return size, digest.hexdigest()


def ref_of(upload: Upload) -> dict[str, Any]:
    """The reference by which an input names an upload."""
    return {"file": str(upload.id), "name": upload.name, "size": upload.size, "sha256": upload.sha256}


def check_refs(value: Any, *, by: Any) -> None:
    """Check every reference within an input (JSON). `by` None means the system, which may use any upload.

    Raises `InvalidValue` for a reference to no upload, to another person's that `by` may not see, or to other bytes
    than it states. One query for all of them.
    """
    refs = list(_refs(value))
    found = Upload.objects.in_bulk({_id_of(ref["file"]) for ref in refs}) if refs else {}
    for ref in refs:
        upload = found.get(_id_of(ref["file"]))
        if upload is None or not _may_use(by, upload):
            raise InvalidValue(f"there is no uploaded file {ref['file']}", file=ref["file"])
        if (upload.size, upload.sha256) != (ref["size"], ref["sha256"]):
            raise InvalidValue(f"size or sha256 of {ref['name']} differ from the uploaded file's", file=ref["file"])


def _refs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.keys() >= _MEMBERS:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _refs(item)


def _id_of(text: Any) -> UUID:
    try:
        return UUID(str(text))
    except ValueError:
        raise InvalidValue(
            f"{str(text)[:200]!r} is no uploaded file: an input names one by the id that its upload gave",
            file=str(text)[:200],
        ) from None


def _may_use(by: Any, upload: Upload) -> bool:
    return by is None or upload.by_id == by.pk or bool(by.has_perm("checkpoints.view_run"))


class Reference(Protocol):
    """The engine's `FileRef`, or anything else that names an upload."""

    @property
    def file(self) -> Any: ...

    @property
    def size(self) -> int: ...

    @property
    def sha256(self) -> str: ...


def open_ref(ref: Reference | Mapping[str, Any]) -> IO[bytes]:
    """Open the file that a reference names, for reading bytes; the caller closes it.

    What is given is a copy that has been compared with size and SHA-256 of the reference, so nobody reads other bytes
    than those that the run was started with. Raises `UnknownThing`, `TamperedUpload`.
    """
    name, size, sha256 = _named(ref)
    upload = Upload.objects.filter(id=_id_of(name)).first()
    if upload is None or not default_storage.exists(upload.stored_as):
        raise UnknownThing(f"the uploaded file {name} is gone", file=str(name))
    copy = tempfile.SpooledTemporaryFile(max_size=_CHUNK)  # noqa: SIM115  the caller closes it
    try:
        with default_storage.open(upload.stored_as, "rb") as stored:
            found = _copied(stored, copy, most=size)
        if found != (size, sha256):
            raise TamperedUpload(f"the bytes of the uploaded file {upload.name} are not those that it had", file=name)
    except BaseException:
        copy.close()
        raise
    copy.seek(0)
    return cast(IO[bytes], copy)


def _named(ref: Reference | Mapping[str, Any]) -> tuple[str, int, str]:
    """Id, size and SHA-256 that a reference states. Raises `UnknownThing`, `InvalidValue`."""
    name, size, sha256 = (
        ref.get(member) if isinstance(ref, Mapping) else getattr(ref, member, None)
        for member in ("file", "size", "sha256")
    )
    _id_of(name)
    if not (isinstance(size, int) and isinstance(sha256, str)):
        raise InvalidValue("a reference to a file states its size and its sha256", path="file")
    return str(name), size, sha256


def refs_in(value: Any) -> list[dict[str, Any]]:
    """The references within an input (JSON), each once."""
    return list({ref["file"]: ref for ref in _refs(value)}.values())


def note_references(run: UUID, input: Any) -> list[str]:
    """Write down which uploads the input (JSON) of a new run names, in the caller's transaction: these stay as long as
    the run. Gives the ids that no upload here has. Nothing is asked where the input names none.
    """
    named = {ref["file"]: _known_id(ref["file"]) for ref in refs_in(input)}
    if not named:
        return []
    wanted = [one for one in named.values() if one is not None]
    # Locked, so that none is deleted as unneeded meanwhile.
    there = set(Upload.objects.select_for_update().filter(id__in=wanted).order_by("id").values_list("id", flat=True))
    UploadReference.objects.bulk_create([UploadReference(run=run, upload_id=one) for one in sorted(there)])
    return [str(file) for file, one in named.items() if one not in there]


def _known_id(text: Any) -> UUID | None:
    try:
        return UUID(str(text))
    except ValueError:
        return None


def delete_unneeded(uploads: Iterable[UUID]) -> set[UUID]:
    """Delete those of these uploads that no run names, rows and files. Gives those that stay. The number of statements
    depends on no other upload and no run.
    """
    with transaction.atomic():
        found = list(Upload.objects.select_for_update().filter(id__in=set(uploads)).order_by("id"))
        needed = set(UploadReference.objects.filter(upload__in=found).values_list("upload", flat=True))
        gone = [one for one in found if one.id not in needed]
        for one in gone:
            # Before its row: a file that no row names would stay for ever.
            default_storage.delete(one.stored_as)
        Upload.objects.filter(id__in=[one.id for one in gone]).delete()
    return needed


class _Sink:
    """Takes bytes and keeps none."""

    def write(self, data: bytes, /) -> int:
        return len(data)


def verify_ref(ref: Mapping[str, Any]) -> None:
    """Compare the bytes that a reference names with what it states, chunk by chunk. Raises `UnknownThing`,
    `TamperedUpload`.
    """
    upload = Upload.objects.filter(id=_id_of(ref["file"])).first()
    if upload is None or not default_storage.exists(upload.stored_as):
        raise UnknownThing(f"the uploaded file {ref['file']} is gone", file=str(ref["file"]))
    with default_storage.open(upload.stored_as, "rb") as stored:
        if _copied(stored, _Sink(), most=ref["size"]) != (ref["size"], ref["sha256"]):
            what = f"the bytes of the uploaded file {upload.name} are not those that it had"
            raise TamperedUpload(what, file=str(ref["file"]))
