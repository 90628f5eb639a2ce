"""A person's right to be forgotten: the values of a run are replaced by tombstones, and everything still verifies.

`retention.erase` is the door; docs/erasure.md tells what is erased where, and what stays.
"""

from checkpoints.erasure.act import KIND, begin_erasure, erase, erase_job
from checkpoints.erasure.places import PLACES, Place
from checkpoints.erasure.plan import CONDITIONS, ErasurePlan, plan_erasure
from checkpoints.erasure.sweeps import SWEEPS, Sweep

__all__ = [
    "CONDITIONS",
    "KIND",
    "PLACES",
    "SWEEPS",
    "ErasurePlan",
    "Place",
    "Sweep",
    "begin_erasure",
    "erase",
    "erase_job",
    "plan_erasure",
]
