"""Runs commands of the project as an installation would: in a process of their own,
with a clean environment.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCTION = {
    "COUNTERSIGN_SECRET_KEY": "only-for-this-test-9f2Kq7Zt4LwXc81bVnR5pJmY3sDhG6aE0uTi",
    "COUNTERSIGN_ALLOWED_HOSTS": "countersign.example.org",
}


def run(
    *command: str | Path,
    cwd: Path = ROOT,
    input: str | None = None,
    **environment: str | Path,
) -> subprocess.CompletedProcess[str]:
    """Run it with nothing in the environment but PATH, HOME and `environment`; its
    input and output are text.
    """
    variables = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG")
        if name in os.environ
    }
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        input=input,
        env={**variables, **{name: str(value) for name, value in environment.items()}},
        capture_output=True,
        text=True,
        timeout=300,
    )


def manage(*words: str, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py."""
    return run(sys.executable, "manage.py", *words, **environment)
