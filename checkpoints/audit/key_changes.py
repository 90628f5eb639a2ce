"""Adds a line to the audit log each time the keys in use change: those of the settings,
or those derived from the secret key.

The job that chains the audit log does this every minute. A line holds ids, fingerprints
and public keys, never a secret.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

from checkpoints.audit import lines as audit_log
from checkpoints.conf import bundle_seed, keyring, trusted_keys
from checkpoints.core.keyring import fingerprint_of, public_part
from checkpoints.models import AuditLine
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN

KIND = "keys_changed"

KeysInUse = dict[str, dict[str, str]]
"""Sort of key -> its id -> a mark that distinguishes it from another key of that id.
`makes` names those that seal and encrypt now.
"""


def record_key_changes() -> None:
    """Add a line unless the keys are those of the newest line of this kind: it records
    which keys came, and which went. The first line has the keys that there are. One
    query if nothing changed.

    If the newest line does not verify, a new one is always added, and records so: the
    key that sealed it may be the one that is gone.
    """
    keys = keys_in_use()
    lines = AuditLine.objects.filter(kind=KIND)
    last = lines.order_by("-id").first()
    keys_before = None
    # The line may be forged, so nothing is taken for granted about its form.
    if last is not None and isinstance(last.facts, dict):
        keys_before = last.facts.get("keys")

    is_proven = last is None or fault_of(last, PLAIN) is None
    if is_proven and keys == keys_before:
        return
    facts: dict[str, Any] = {"keys": keys}
    # The first line, and a line after a forged one, has nothing to compare with.
    if _has_form(keys_before):
        facts["came"] = _ids_beyond(keys, keys_before)
        facts["went"] = _ids_beyond(keys_before, keys)
    # The line that does not verify may name keys that were never there.
    if last is not None and not is_proven:
        facts["unproven"] = last.id
    audit_log.record(KIND, actor=None, **facts)


def keys_in_use() -> KeysInUse:
    """Return ids and fingerprints of the keys that this process has now; of public keys
    the key itself, in hexadecimal.
    """
    ring = keyring()
    own_key = public_part(bundle_seed())
    trusted = {}
    for name, key in trusted_keys().items():
        trusted[name] = key.hex()
    compromised = {}
    # An earlier date makes more rows count as forged, so it is a change too.
    for name, since in ring.compromised.items():
        compromised[name] = since.isoformat()
    # The keys that new rows are sealed and encrypted with.
    makes = {"signing": ring.signer}
    if ring.encryption:
        makes["encryption"] = ring.encrypter
    return {
        "signing": _fingerprints(ring.signing, "signing"),
        "encryption": _fingerprints(ring.encryption, "encryption"),
        "bundle": {"own": own_key.hex()},
        "trusted": trusted,
        "compromised": compromised,
        "makes": makes,
    }


def _fingerprints(keys: Mapping[str, bytes], use: str) -> dict[str, str]:
    fingerprints = {}
    for name, key in keys.items():
        fingerprints[name] = fingerprint_of(key, use)
    return fingerprints


def _has_form(keys: Any) -> TypeGuard[KeysInUse]:
    """Return whether these are keys as our lines have them: a line that does not verify
    may hold anything.
    """
    if not isinstance(keys, dict):
        return False
    return all(isinstance(keys_of_sort, dict) for keys_of_sort in keys.values())


def _ids_beyond(keys: KeysInUse, other_keys: KeysInUse) -> dict[str, list[str]]:
    """Return the ids of those keys that the others lack, or have as another key, by
    their sorts.
    """
    ids_by_sort: dict[str, list[str]] = {}
    for sort, keys_of_sort in keys.items():
        other_marks = other_keys.get(sort, {})
        ids = []
        for id, mark in keys_of_sort.items():
            if other_marks.get(id) != mark:
                ids.append(id)
        if ids:
            ids_by_sort[sort] = sorted(ids)
    return ids_by_sort
