"""Text that no compression makes disappear: every contender and the limit write the
same.
"""

import base64
import hashlib


def line(number: int, size: int) -> str:
    """Return this many characters that carry six bits each; another text for every
    number.
    """
    return base64.b64encode(hashlib.shake_128(b"%d" % number).digest(size)).decode()[
        :size
    ]


KILOBYTES = [line(number, 1024) for number in range(64)]
"""For states that hold only one of them at a time."""
