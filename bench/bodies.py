"""Text that no compression makes disappear: every contender and the limit write the same."""

import base64
import random

_dice = random.Random(9)


def text(size: int) -> str:
    """That many characters which carry six bits each."""
    return base64.b64encode(_dice.randbytes(size)).decode()[:size]


KILOBYTES = [text(1024) for _ in range(64)]
