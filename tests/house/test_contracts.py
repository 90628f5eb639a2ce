"""The floors and storeys of the house hold."""

import sys

from tests.house.commands import run


def test_calls_only_go_down() -> None:
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    done = run(sys.executable, "-c", lint)
    assert done.returncode == 0, done.stdout
    assert done.stderr == "", done.stdout
    assert " 0 broken" in done.stdout


def test_importing_the_engine_leaves_django_unloaded() -> None:
    code = (
        "import sys, orchestrator.engine; print({'django', 'structlog', 'sqlite3'}"
        " & set(sys.modules))"
    )
    done = run(sys.executable, "-c", code)
    assert done.stdout.strip() == "set()"
    assert done.stderr == ""


def test_the_pure_part_of_the_lowest_floor_leaves_django_unloaded() -> None:
    code = "import sys, checkpoints.core; print('django' in sys.modules)"
    assert run(sys.executable, "-c", code).stdout.strip() == "False"
