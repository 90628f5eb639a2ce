"""A project of somebody else, in a virtual environment of its own that has our wheel
and not our folder.

It is set up by the words of docs/use-in-your-project.md: its blocks of code are what is
written into the project.
"""

import site
import sys
import venv
from pathlib import Path

from tests.house.commands import ROOT, run
from tests.house.words import blocks

PAGE = "use-in-your-project.md"
SETTINGS, SQLITE, POSTGRESQL, URLS = blocks(PAGE, "python")


def build_wheel(folder: Path) -> Path:
    """The wheel of this project, built into `folder`."""
    done = run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        folder,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment in `folder` with the wheel; what it depends on is borrowed
    from ours. Returns its python.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    done = run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--quiet",
        wheel,
    )
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    # The .pth files of a folder named in a .pth file are not read: our own checkout
    # stays out of sight.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    return python


def start_project(python: Path, folder: Path, *, more_settings: str = "") -> Path:
    """`django-admin startproject host`, then what the page says, on SQLite. Returns its
    manage.py.
    """
    folder.mkdir()
    done = run(python, "-m", "django", "startproject", "host", folder)
    assert done.returncode == 0, done.stderr
    with (folder / "host" / "settings.py").open("a") as file:
        file.write(f"\n{SETTINGS}\n{SQLITE}\n{more_settings}")
    (folder / "host" / "urls.py").write_text(URLS)
    return folder / "manage.py"


def our_modules() -> set[str]:
    """Every module that the wheel should hold."""
    return {
        str(path.relative_to(ROOT))
        for name in ("orchestrator", "approvals", "checkpoints")
        for path in (ROOT / name).rglob("*.py")
    }
