"""Programs in TypeScript: compiled once, with the types that the schema gives, and run by
node.
"""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.house.client_source import schema_of_the_api

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
BUILD = ROOT / "build" / "node"
"""Kept between passes: to install and to compile takes half a minute."""
SOURCES = (
    EXAMPLES / "countersign-ai-sdk.ts",
    ROOT / "tests" / "orchestrator" / "bridges" / "ai_sdk" / "conversation.ts",
)
PAGES = {"client.ts": "client.md", "assistant.ts": "ai-sdk.md"}
"""Programs that are the blocks of a page."""
OPTIONS = (
    "--strict",
    "--target",
    "es2022",
    "--module",
    "nodenext",
    "--skipLibCheck",
    "--noUncheckedIndexedAccess",
)


def program(name: str) -> list[str]:
    """Return the command that runs one of the programs. Skips the test where there is
    no node, or its packages cannot be installed.
    """
    for needed in ("node", "npm"):
        if shutil.which(needed) is None:
            pytest.skip(f"no {needed} is installed")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        # Other processes of the same pass wait for the first, and take what it made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install()
        _compile()
    return ["node", str(BUILD / "out" / name)]


def blocks(page: str) -> str:
    """Return the program that the blocks of a page are together."""
    text = (ROOT / "docs" / page).read_text()
    return "\n".join(re.findall(r"```ts\n(.*?)```", text, re.DOTALL))


def _install() -> None:
    wanted = (EXAMPLES / "package.json").read_text()
    stamp = BUILD / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    (BUILD / "package.json").write_text(wanted)
    options = ("--no-package-lock", "--no-audit", "--no-fund", "--prefer-offline")
    installed = _run("npm", "install", *options)
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install its packages: {installed.stderr[-300:]}")
    stamp.write_text(wanted)


def _compile() -> None:
    sources = {path.name: path.read_text() for path in SOURCES}
    for name, page in PAGES.items():
        sources[name] = blocks(page)
    schema = json.dumps(schema_of_the_api(), default=str, sort_keys=True)
    everything = json.dumps([sources, schema, OPTIONS]).encode()
    digest = hashlib.sha256(everything).hexdigest()
    stamp = BUILD / "compiled"
    if stamp.exists() and stamp.read_text() == digest:
        return
    (BUILD / "schema.json").write_text(schema)
    for name, text in sources.items():
        (BUILD / name).write_text(text)
    _must("npm", "run", "--silent", "types")
    _must("npx", "tsc", *OPTIONS, "--outDir", "out", *sources)
    stamp.write_text(digest)


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=BUILD, capture_output=True, text=True, check=False
    )


def _must(*command: str) -> None:
    done = _run(*command)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def output(command: list[str], *words: str, **environment: str) -> Any:
    """Run a program that prints JSON in its last line, and return that."""
    done = subprocess.run(
        [*command, *words],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
