"""The rows of the ledger, one noun a module: fields, constraints and filters. What
changes them stands in the verbs.
"""

from checkpoints.models.audit_line import AuditHead, AuditLine
from checkpoints.models.bundle_import import BundleImport
from checkpoints.models.checkpoint import Checkpoint
from checkpoints.models.erasure import ErasedRow, ErasureRecord
from checkpoints.models.graph_version import GraphVersion
from checkpoints.models.job import Job
from checkpoints.models.legal_hold import LegalHold, Pin
from checkpoints.models.memory_trace import MemoryLanding, MemoryRecord, MemoryTrace
from checkpoints.models.notes import RunMetadata, TaskFigure
from checkpoints.models.older_seals import OlderSeals
from checkpoints.models.pending_write import PendingWrite
from checkpoints.models.retention_policy import RemovedKey, RetentionPolicy
from checkpoints.models.run import Run, RunKey
from checkpoints.models.run_event import RunEvent
from checkpoints.models.run_line import RunLine
from checkpoints.models.task_result import LateResult, TaskResult
from checkpoints.models.upload import Upload, UploadReference
from checkpoints.models.worker import Worker

__all__ = [
    "AuditHead",
    "AuditLine",
    "BundleImport",
    "Checkpoint",
    "ErasedRow",
    "ErasureRecord",
    "GraphVersion",
    "Job",
    "LateResult",
    "LegalHold",
    "MemoryLanding",
    "MemoryRecord",
    "MemoryTrace",
    "OlderSeals",
    "PendingWrite",
    "Pin",
    "RemovedKey",
    "RetentionPolicy",
    "Run",
    "RunEvent",
    "RunKey",
    "RunLine",
    "RunMetadata",
    "TaskFigure",
    "TaskResult",
    "Upload",
    "UploadReference",
    "Worker",
]
