"""Files that inputs refer to: bytes in Django's default storage, a row each, and a
reference in the input.

The start form, the API and `start_run --file` save uploads here; `runs.start` checks
references; nodes open them. A reference is {file, name, size, sha256}, `file` being the
upload's id. An input never contains a path.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import IO, Any, Protocol, cast
from uuid import UUID

from django.core.exceptions import SuspiciousFileOperation
from django.core.files import File
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.core.ids import uuid7
from checkpoints.models import Upload, UploadReference
from orchestrator.engine.errors import (
    InvalidValue,
    PayloadTooLarge,
    TamperedUpload,
    UnknownThing,
)

_CHUNK = 1024 * 1024
_MEMBERS = frozenset({"file", "name", "size", "sha256"})


class ReadableFile(Protocol):
    """An open file, as far as it matters here."""

    def read(self, size: int = ..., /) -> bytes: ...


class Writable(Protocol):
    """Anything that bytes can be written to."""

    def write(self, data: bytes, /) -> int: ...


def save_upload(
    file: ReadableFile,
    *,
    name: str,
    by: Any,
) -> dict[str, Any]:
    """Copy an open binary file into storage and return the reference to it. `by` None
    means the system.

    `name` is shown to people; if it is a path, only its last part is kept. Raises
    `PayloadTooLarge`, `InvalidValue`.
    """
    checked_text(name, "name", most=10_000)
    if by is not None:
        checked_person(by, "by")
    # Browsers on Windows may send a whole path.
    shown = PurePath(name.replace("\\", "/")).name[:255] or "file"
    upload = Upload(id=uuid7(), name=shown, by=by, at=timezone.now())
    # The hashed bytes are stored, even if the source is written to in the meantime.
    with tempfile.SpooledTemporaryFile(max_size=_CHUNK) as copy:
        most = conf().max_upload_bytes
        upload.size, upload.sha256 = _copied(file, copy, most=most)
        if upload.size > most:
            raise PayloadTooLarge(f"the file is larger than {most} bytes", most=most)
        copy.seek(0)
        upload.stored_as = default_storage.save(
            f"uploads/{upload.id}", File(copy, name=str(upload.id))
        )
    upload.save(force_insert=True)
    return ref_of(upload)


def _copied(
    source: ReadableFile,
    target: Writable,
    *,
    most: int,
) -> tuple[int, str]:
    """Copy, and return size and SHA-256 of what was read: at most up to the chunk that
    goes beyond `most` bytes.
    """
    size = 0
    digest = hashlib.sha256()
    while size <= most:
        chunk = source.read(_CHUNK)
        if not chunk:
            break
        size += len(chunk)
        digest.update(chunk)
        target.write(chunk)
    return size, digest.hexdigest()


def ref_of(upload: Upload) -> dict[str, Any]:
    """Return the reference with which an input names an upload."""
    return {
        "file": str(upload.id),
        "name": upload.name,
        "size": upload.size,
        "sha256": upload.sha256,
    }


def check_refs(value: Any, *, by: Any) -> None:
    """Check every reference within an input (JSON). `by` None means the system, which
    may use any upload.

    Raises `InvalidValue` for a reference to an upload that does not exist, that `by`
    may not use, or whose size or hash differ from the reference. One query for all of
    them.
    """
    refs = list(_refs(value))
    if not refs:
        return
    ids = {_id_of(ref["file"]) for ref in refs}
    uploads = Upload.objects.in_bulk(ids)
    for ref in refs:
        upload = uploads.get(_id_of(ref["file"]))
        # One refusal for both: nobody learns of files that they may not see.
        if upload is None or not _may_use(by, upload):
            raise InvalidValue(
                f"there is no uploaded file {ref['file']}", file=ref["file"]
            )
        if (upload.size, upload.sha256) != (ref["size"], ref["sha256"]):
            raise InvalidValue(
                f"size or sha256 of {ref['name']} differ from the uploaded file's",
                file=ref["file"],
            )


def _refs(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the references within a value, in order, however deep it is nested: an
    input that was not compared with its hash may be of any depth.
    """
    values = [value]
    while values:
        next_value = values.pop()
        members: Iterable[Any] = ()
        if isinstance(next_value, list):
            members = next_value
        elif isinstance(next_value, dict):
            if next_value.keys() >= _MEMBERS:
                yield next_value
            # A reference may have further members, with references in them.
            members = next_value.values()
        values += reversed(list(members))


def _id_of(text: Any) -> UUID:
    try:
        return UUID(str(text))
    except ValueError:
        shown = str(text)[:200]
        raise InvalidValue(
            f"{shown!r} is no uploaded file: "
            "an input names one by the id that its upload gave",
            file=shown,
        ) from None


def _may_use(by: Any, upload: Upload) -> bool:
    if by is None or upload.by_id == by.pk:
        return True
    return bool(by.has_perm("checkpoints.view_run"))


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

    The result is a copy that has been compared with size and SHA-256 of the reference,
    so a node never reads other bytes than those that the run was started with.
    Raises `UnknownThing`, `TamperedUpload`, `InvalidValue`.
    """
    name, size, sha256 = _stated_by(ref)
    upload = _stored_upload(name)
    copy = tempfile.SpooledTemporaryFile(max_size=_CHUNK)  # noqa: SIM115  the caller closes it
    try:
        with default_storage.open(upload.stored_as, "rb") as stored:
            copied = _copied(stored, copy, most=size)
        if copied != (size, sha256):
            raise _tampered(upload, name)
    except BaseException:
        copy.close()
        raise
    copy.seek(0)
    return cast(IO[bytes], copy)


def _stored_upload(name: Any) -> Upload:
    """Return the upload of a reference. Raises `InvalidValue` if it names none by its
    id, `UnknownThing` if its row or its file is gone.
    """
    upload = Upload.objects.filter(id=_id_of(name)).first()
    if upload is None or not _is_stored(upload):
        raise UnknownThing(f"the uploaded file {name} is gone", file=str(name))
    return upload


def _is_stored(upload: Upload) -> bool:
    """Return whether the file of an upload exists. No seal covers where it is stored: a
    name that leads out of the storage, or is none, names no file.
    """
    try:
        return default_storage.exists(upload.stored_as)
    except (SuspiciousFileOperation, ValueError):
        return False


def _tampered(upload: Upload, name: str) -> TamperedUpload:
    return TamperedUpload(
        f"the bytes of the uploaded file {upload.name} are not those that it had",
        file=name,
    )


def _stated_by(ref: Reference | Mapping[str, Any]) -> tuple[str, int, str]:
    """Return id, size and SHA-256 that a reference states. Raises `UnknownThing`,
    `InvalidValue`.
    """
    if isinstance(ref, Mapping):
        name = ref.get("file")
        size = ref.get("size")
        sha256 = ref.get("sha256")
    else:
        name = getattr(ref, "file", None)
        size = getattr(ref, "size", None)
        sha256 = getattr(ref, "sha256", None)
    # Refuses a name that is no id.
    _id_of(name)
    if not (isinstance(size, int) and isinstance(sha256, str)):
        raise InvalidValue(
            "a reference to a file states its size and its sha256", path="file"
        )
    return str(name), size, sha256


def refs_in(value: Any) -> list[dict[str, Any]]:
    """Return the references within an input (JSON), each once. What names its file by
    something other than a text is none.
    """
    ref_by_file = {}
    for ref in _refs(value):
        if isinstance(ref["file"], str):
            ref_by_file[ref["file"]] = ref
    return list(ref_by_file.values())


def note_references(run: UUID, input: Any) -> list[str]:
    """Record which uploads the input (JSON) of a new run names, in the caller's
    transaction: these stay as long as the run. Return the names that match no upload
    here. No query if the input names none.
    """
    id_of_file = {ref["file"]: _known_id(ref["file"]) for ref in refs_in(input)}
    if not id_of_file:
        return []
    ids = [id for id in id_of_file.values() if id is not None]
    # Locked, so that none is deleted as unneeded in the meantime.
    uploads = Upload.objects.select_for_update().filter(id__in=ids).order_by("id")
    existing = set(uploads.values_list("id", flat=True))
    references = []
    for id in sorted(existing):
        references.append(UploadReference(run=run, upload_id=id))
    UploadReference.objects.bulk_create(references)
    return [str(file) for file, id in id_of_file.items() if id not in existing]


def _known_id(text: Any) -> UUID | None:
    try:
        return UUID(str(text))
    except ValueError:
        return None


def delete_unneeded(uploads: Iterable[UUID]) -> set[UUID]:
    """Delete those of these uploads that no run names, rows and files. Return those
    that stay. The number of statements does not depend on other uploads or on runs.
    """
    with transaction.atomic():
        rows = Upload.objects.select_for_update().filter(id__in=set(uploads))
        candidates = list(rows.order_by("id"))
        # Read under the lock, so that no run can begin to name one in the meantime.
        references = UploadReference.objects.filter(upload__in=candidates)
        needed = set(references.values_list("upload", flat=True))
        unneeded = [upload for upload in candidates if upload.id not in needed]
        for upload in unneeded:
            # Before its row: a file that no row names would never be deleted.
            default_storage.delete(upload.stored_as)
        Upload.objects.filter(id__in=[upload.id for upload in unneeded]).delete()
    return needed


class _Sink:
    """A writable that discards all bytes."""

    def write(self, data: bytes, /) -> int:
        return len(data)


def verify_ref(ref: Mapping[str, Any]) -> None:
    """Compare the bytes that a reference names with what it states, chunk by chunk.
    Raises `UnknownThing`, `TamperedUpload`.
    """
    name, size, sha256 = _stated_by(ref)
    upload = _stored_upload(name)
    with default_storage.open(upload.stored_as, "rb") as stored:
        copied = _copied(stored, _Sink(), most=size)
    if copied != (size, sha256):
        raise _tampered(upload, name)
