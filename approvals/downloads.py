"""Responses that are files, sent part by part under every server, so that a long file
is never held in memory.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header

PART = 256 * 1024
"""The most bytes of a file that are read, and sent, at once."""
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""The characters that spreadsheets read as the beginning of a formula."""


def file_answer(
    request: HttpRequest, file: BinaryIO, *, name: str, content_type: str
) -> StreamingHttpResponse:
    """Return a download of the file under that name. The response closes the file."""
    size = file.seek(0, 2)
    file.seek(0)
    answer = StreamingHttpResponse(
        _AsyncParts(file) if _is_async(request) else _Parts(file),
        content_type=content_type,
    )
    answer.headers["Content-Length"] = str(size)
    answer.headers["Content-Disposition"] = content_disposition_header(True, name) or ""
    return answer


def served_chunks(request: HttpRequest, chunks: Iterator[bytes]) -> Any:
    """Return the chunks in the form that this server takes: under ASGI they must be
    asynchronous, or all would be collected first.
    """
    return _one_by_one(chunks) if _is_async(request) else chunks


def csv_cell(text: str) -> str:
    """Return the text for a table that a spreadsheet opens. An apostrophe precedes a
    text that it would take for a formula.
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def _is_async(request: HttpRequest) -> bool:
    return isinstance(request, ASGIRequest)


async def _one_by_one(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    # With a default, because `StopIteration` cannot leave the thread through a future.
    following = sync_to_async(lambda: next(chunks, None))
    while (chunk := await following()) is not None:
        yield chunk


def _part_of(file: BinaryIO) -> bytes:
    return file.read(PART)


class _Parts:
    """The parts of a file. Django closes it with the response, even if nothing was read
    of it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # Not a generator: closing one that was never started would leave the file open.
        self.close = file.close

    def __iter__(self) -> Iterator[bytes]:
        while part := _part_of(self._file):
            yield part


class _AsyncParts:
    """The parts of a file for an asynchronous server."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.close = file.close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = sync_to_async(_part_of)
        while part := await read(self._file):
            yield part
