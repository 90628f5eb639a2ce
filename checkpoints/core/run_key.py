"""The rule of which texts may be the key of a run. Keys are part of addresses and
aliases, in the same places as ids. Pure.
"""

import re
from uuid import UUID

LONGEST_KEY = 200
RULE = "1 to 200 characters without / and :, and not shaped like a UUID"
_KEY = re.compile(r"[^/:\x00\ud800-\udfff]{1,200}")


def is_run_key(text: str) -> bool:
    """Return whether a run may be started under this key."""
    return bool(_KEY.fullmatch(text)) and not is_like_uuid(text)


def is_like_uuid(text: str) -> bool:
    """Return whether the text would be taken for the id of a run. `UUID` reads more than
    the usual form: also braces, and hyphens anywhere.
    """
    try:
        UUID(text)
    except ValueError:
        return False
    return True
