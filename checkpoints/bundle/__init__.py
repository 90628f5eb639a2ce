"""Bundles: a run as one signed file that leaves the installation, is verified offline,
and is imported elsewhere to be read.

docs/bundles.md describes the format. `export` and `load` follow the rule of
`checkpoints.rights`.
"""

from checkpoints.bundle.exporter import Exported, export
from checkpoints.bundle.importer import load, load_or_find
from checkpoints.bundle.signing_keys import public_key
from checkpoints.bundle.tables import BundledTable, add_table
from checkpoints.bundle.verifier import Verdict, verify

__all__ = [
    "BundledTable",
    "Exported",
    "Verdict",
    "add_table",
    "export",
    "load",
    "load_or_find",
    "public_key",
    "verify",
]
