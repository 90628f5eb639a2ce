"""The words of the documentation as a reader follows them: its blocks of code, its
commands, what it has him export.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from tests.house.commands import ROOT


def blocks(page: str, kind: str = "") -> list[str]:
    """The blocks of code of that kind in a page of docs, in their order; without a kind
    the unmarked ones.
    """
    text = (ROOT / "docs" / page).read_text()
    matches = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for name, block in matches if name == kind]


@dataclass(frozen=True)
class Script:
    """A block of commands: the variables that it exports, and each command's words."""

    exports: dict[str, str]
    commands: list[list[str]]


def script(block: str) -> Script:
    """A block of commands, read as a shell would. Lines that end in a backslash go on."""
    lines = [
        shlex.split(line)
        for line in block.replace("\\\n", "").splitlines()
        if line.strip()
    ]
    exports = [
        word.partition("=")[::2]
        for words in lines
        if words[0] == "export"
        for word in words[1:]
    ]
    return Script(dict(exports), [words for words in lines if words[0] != "export"])


def beginning(commands: Sequence[list[str]], *words: str) -> list[str]:
    """The one command that begins with these words."""
    (command,) = [
        command for command in commands if command[: len(words)] == list(words)
    ]
    return command
