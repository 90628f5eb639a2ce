"""How canonical bytes are kept: one format byte, then the bytes, compressed where that pays. Pure.

The format byte stands in front so that rows written today stay readable whatever tomorrow's rows look like.
"""

import threading

import zstandard

PLAIN = b"\x01"
ZSTD = b"\x02"
_THRESHOLD = 512
"""Bytes below which a zstd frame costs more than it saves."""


_local = threading.local()


def _compressor() -> zstandard.ZstdCompressor:
    """This thread's own: to make one costs more than to use it, and two threads must not share one."""
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=1)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    """This thread's own, as `_compressor`."""
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor


class UnknownFormat(ValueError):
    """The first byte names no format that this version reads. Cure: read the row with the version that wrote it."""


def pack(data: bytes) -> bytes:
    """The bytes as they are kept."""
    if len(data) < _THRESHOLD:
        return PLAIN + data
    return ZSTD + _compressor().compress(data)


def unpack(kept: bytes) -> bytes:
    """The bytes as they were given to `pack`. Raises `UnknownFormat`."""
    form, data = kept[:1], kept[1:]
    if form == PLAIN:
        return data
    if form == ZSTD:
        return _decompressor().decompress(data)
    raise UnknownFormat(f"unknown format byte {form.hex() or 'none'}")
