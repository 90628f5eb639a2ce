"""A person's right to be forgotten: the values of a run are replaced by tombstones, and
everything still verifies.

Call it through `retention.erase`, which checks rights and legal holds; docs/erasure.md
lists what is erased where, and what stays.
"""

from checkpoints.erasure.erasure_job import KIND, erase_job
from checkpoints.erasure.places import PLACES, Place
from checkpoints.erasure.plan import CONDITIONS, ErasurePlan, plan_erasure
from checkpoints.erasure.request import begin_erasure, erase
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
