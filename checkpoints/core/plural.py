"""Numbers of things in English. Pure."""


def counted(count: int, thing: str) -> str:
    """Return the number and the noun, in the plural unless the number is 1."""
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing}s"
