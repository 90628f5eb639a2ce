"""A project of somebody else, in a virtual environment of its own that has our wheel and not our folder."""

import site
import sys
import venv
from pathlib import Path

from tests.house.commands import ROOT, run

APPS = (
    "daphne",
    "django_q",
    "orchestrator",
    "approvals",
    "checkpoints",
    "channels",
    "rest_framework",
    "drf_spectacular",
)
SETTINGS = f"""
INSTALLED_APPS = [{", ".join(map(repr, APPS))}, *INSTALLED_APPS]
ALLOWED_HOSTS = ["testserver"]
TEMPLATES[0]["DIRS"] = [BASE_DIR / "templates"]
STATIC_ROOT = BASE_DIR / "collected"
"""
URLS = """
from django.urls import include, path

urlpatterns = [path("", include("orchestrator.urls"))]
"""


def build_wheel(folder: Path) -> Path:
    """The wheel of this project, built into `folder`."""
    done = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment in `folder` with the wheel; what it depends on is borrowed from ours. Returns its python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--quiet", wheel)
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    # The .pth files of a folder named in a .pth file are not read: our own checkout stays out of sight.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    return python


def start_project(python: Path, folder: Path) -> Path:
    """`django-admin startproject host`, with our apps. Returns its manage.py."""
    folder.mkdir()
    done = run(python, "-m", "django", "startproject", "host", folder)
    assert done.returncode == 0, done.stderr
    with (folder / "host" / "settings.py").open("a") as file:
        file.write(SETTINGS)
    (folder / "host" / "urls.py").write_text(URLS)
    (folder / "templates").mkdir()
    (folder / "templates" / "base.html").write_text("A page of the host.")
    return folder / "manage.py"


def our_modules() -> set[str]:
    """Every module that the wheel should hold."""
    return {
        str(path.relative_to(ROOT))
        for name in ("orchestrator", "approvals", "checkpoints")
        for path in (ROOT / name).rglob("*.py")
    }
