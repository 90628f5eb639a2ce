"""The stored form of canonical bytes: one format byte, then the bytes, compressed where
that pays. Pure.

The format byte comes first so that rows written today stay readable whatever the form
of tomorrow's rows.
"""

import threading

import zstandard

PLAIN = b"\x01"
ZSTD = b"\x02"
_THRESHOLD = 512
"""The number of bytes below which a zstd frame costs more than it saves."""

_local = threading.local()


def _compressor() -> zstandard.ZstdCompressor:
    """Return this thread's compressor: making one costs more than using it, and two
    threads must not share one.
    """
    # Level 1, since every commit compresses: 1 KB takes about 5 µs.
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=1)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's decompressor, for the same reasons."""
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor


class UnknownFormat(ValueError):
    """The first byte names no format that this version reads. Cure: read the row with
    the version that wrote it.
    """


def pack(data: bytes) -> bytes:
    """Return the bytes as they are stored."""
    # The form is chosen by length alone, so equal bytes have equal stored forms.
    if len(data) < _THRESHOLD:
        return PLAIN + data
    return ZSTD + _compressor().compress(data)


def unpack(packed: bytes) -> bytes:
    """Return the bytes that `pack` was called with. Raises `UnknownFormat`."""
    form = packed[:1]
    data = packed[1:]
    if form == PLAIN:
        return data
    if form == ZSTD:
        return _decompressor().decompress(data)
    raise UnknownFormat(f"unknown format byte {form.hex() or 'none'}")
