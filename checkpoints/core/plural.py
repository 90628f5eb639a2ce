"""Numbers of things in English. Pure."""


def counted(count: int, thing: str) -> str:
    """Return the number with the thing, in the plural unless there is one."""
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing}s"
