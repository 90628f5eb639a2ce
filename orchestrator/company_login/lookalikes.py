"""Names that look like other names: letters of other scripts, such as a Cyrillic а."""


def distinct(name: str) -> str:
    """Return a name in Latin letters if all of it looks like them; empty if it mixes
    scripts; else the name itself.
    """
    # Its tables take a megabyte, and few names need them.
    from confusable_homoglyphs.confusables import is_mixed_script

    in_latin = "".join(_latin(letter) for letter in name)
    if in_latin.isascii():
        return in_latin
    return "" if is_mixed_script(name) else name


def _latin(letter: str) -> str:
    """Return the Latin letter or digit that a letter looks like, else the letter."""
    from confusable_homoglyphs.confusables import is_confusable

    if letter.isascii():
        return letter
    for similar in is_confusable(letter) or ():
        for glyph in similar["homoglyphs"]:
            if glyph["c"].isascii() and glyph["c"].isalnum():
                return str(glyph["c"])
    return letter
