"""A line of the audit log each time other keys are in use: those of the settings, or derived from the secret key.

The job that chains the audit log calls it every minute. A line holds ids, fingerprints and public keys, never a secret.
"""

from typing import Any, TypeGuard

from checkpoints import audit_log
from checkpoints.conf import bundle_seed, keyring, trusted_keys
from checkpoints.core.keyring import fingerprint_of, public_part
from checkpoints.models import AuditLine
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN

KIND = "keys_changed"

KeysInUse = dict[str, dict[str, str]]
"""Sort of key -> its id -> what tells it from another of that id. `makes` names those that seal and encrypt now."""


def record_key_changes() -> None:
    """Add a line where the keys are not those that the newest line of this kind tells of: what came, and what went. The
    first one tells what is there. One query where nothing changed.

    Where the newest line does not verify there is always a new one, which says so: the key that sealed it may be the
    one that is gone.
    """
    now, last = keys_in_use(), AuditLine.objects.filter(kind=KIND).order_by("-id").first()
    before = last.facts.get("keys") if last is not None and isinstance(last.facts, dict) else None
    proven = last is None or fault_of(last, PLAIN) is None
    if proven and now == before:
        return
    facts: dict[str, Any] = {"keys": now}
    if _has_form(before):
        facts |= {"came": _beyond(now, before), "went": _beyond(before, now)}
    if last is not None and not proven:
        facts["unproven"] = last.id
    audit_log.record(KIND, actor=None, **facts)


def keys_in_use() -> KeysInUse:
    """Ids and fingerprints of the keys that this process has now; of public keys the key itself, in hexadecimal."""
    ring = keyring()
    encrypter = {"encryption": ring.encrypter} if ring.encryption else {}
    return {
        "signing": {name: fingerprint_of(key, "signing") for name, key in ring.signing.items()},
        "encryption": {name: fingerprint_of(key, "encryption") for name, key in ring.encryption.items()},
        "bundle": {"own": public_part(bundle_seed()).hex()},
        "trusted": {name: key.hex() for name, key in trusted_keys().items()},
        "compromised": {name: since.isoformat() for name, since in ring.compromised.items()},
        "makes": {"signing": ring.signer, **encrypter},
    }


def _has_form(found: Any) -> TypeGuard[KeysInUse]:
    """Whether that is what a line of ours says: one that does not verify may say anything."""
    return isinstance(found, dict) and all(isinstance(keys, dict) for keys in found.values())


def _beyond(some: KeysInUse, others: KeysInUse) -> dict[str, list[str]]:
    """The ids of those keys that the others lack, or have as another key, by their sorts."""
    found = {
        sort: sorted(name for name, mark in keys.items() if others.get(sort, {}).get(name) != mark)
        for sort, keys in some.items()
    }
    return {sort: names for sort, names in found.items() if names}
