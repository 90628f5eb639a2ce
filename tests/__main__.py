"""`python -m tests`: the tests on SQLite, again on a real PostgreSQL, and in a browser.
With `--sweep-short` a part of the long ones instead: sweeps in short, and whole
installations. Further words go to pytest.

Which part of the long ones follows from the commit's id, so that a commit always runs
the same tests, and commits take turns. `COUNTERSIGN_PART=2` takes that part,
`COUNTERSIGN_PART=all` everything.

What needs no database (the engine, the house) runs in the first pass only. A PostgreSQL
that does not start is a failure. The browser has processes of its own: its event loop
stays in the thread, where later tests would meet it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BROWSER = "tests/browser"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is installed is taken; the one that has no windows needs the least
processor time.
"""
SWEEPS = ("tests/crash", "tests/races", "tests/properties", "tests/soak")
"""Every kind of crash, race and random graph, each in short; half a minute of killed
processes.
"""
WHOLE = (
    "tests/checkpoints/bundle",
    "tests/checkpoints/erasure",
    "tests/checkpoints/verification/test_columns.py",
    "tests/engine/test_random_graphs.py",
)
"""Every column of every table, every bit of a file, every place of a value, any graph:
for the first pass they take too long.
"""
INSTALLATIONS = (
    "tests/deploy",
    "tests/stories",
    "tests/checkpoints/test_keys_in_settings.py",
    "tests/house/test_deployment.py",
    "tests/house/test_own_login.py",
    "tests/house/test_own_project.py",
    "tests/house/test_own_throttle.py",
    "tests/house/test_production.py",
    "tests/house/test_selection.py",
    "tests/orchestrator/test_redis.py",
    "tests/orchestrator/test_up.py",
    "tests/orchestrator/worker/test_alive_file.py",
    "tests/orchestrator/worker/test_cluster.py",
    "tests/orchestrator/worker/test_process_group.py",
    "tests/orchestrator/worker/test_restart.py",
    "tests/orchestrator/worker/test_rollout.py",
    "tests/orchestrator/worker/test_slots.py",
    "tests/orchestrator/worker/test_takeover.py",
)
"""Whole installations that are made, started, killed and put to work: minutes, mostly
of waiting.
"""
FOREIGN_PROCESSES = (
    "tests/orchestrator/bridges/test_ai_sdk.py",
    "tests/orchestrator/bridges/test_celery.py",
    "tests/orchestrator/bridges/test_dagster.py",
    "tests/orchestrator/bridges/test_dbos.py",
    "tests/orchestrator/bridges/test_examples.py",
)
"""Servers and workers of other libraries. `test_one_inbox.py` has a case of each of
these libraries, and runs in the first pass.
"""
EACH_COMMIT = (
    "tests/house/test_deployment.py",
    "tests/house/test_own_project.py",
    "tests/house/test_production.py",
    "tests/orchestrator/worker/test_takeover.py",
    "tests/stories/test_old_database.py",
)
"""Long ones that no commit leaves out: what the documentation has a newcomer do, and
databases of older versions.
"""
PARTS = 16
LONG = (*SWEEPS, *WHOLE, *INSTALLATIONS, *FOREIGN_PROCESSES, "tests/bench")
"""What `--sweep-short` runs."""
ON_ONE_DATABASE = (
    "tests/approvals/forms",
    "tests/approvals/audit/test_words.py",
    "tests/bench",
    "tests/checkpoints/test_conf.py",
    "tests/deploy",
    "tests/engine",
    "tests/house",
    "tests/orchestrator/devtools",
    "tests/orchestrator/test_client_address.py",
    "tests/orchestrator/test_environment.py",
    "tests/orchestrator/test_redis.py",
    "tests/orchestrator/test_wrong_settings.py",
)
CORE = (
    "tests/approvals/gates",
    "tests/approvals/test_append_only.py",
    "tests/approvals/test_signing.py",
    "tests/checkpoints/db",
    "tests/checkpoints/journal",
    "tests/checkpoints/ledger",
    "tests/checkpoints/memory",
    "tests/checkpoints/queue",
    "tests/orchestrator/execution",
)
"""What leans on how a database locks, commits and plans. The rest sees the rows alone:
on PostgreSQL it runs with the long ones.
"""
# Much of a test's time is waiting: for worker processes, and for leases that run out.
# Whoever has nothing left to do takes from the others, so that slow tests that lie side
# by side are not waited for one by one.
AT_ONCE = ("-n", str(2 * (os.cpu_count() or 1)), "--dist=worksteal")
IN_BROWSER = ("-n", "2", "--dist=worksteal")
MORE_PAGES = (
    "tests/browser/test_access.py",
    "tests/browser/test_compare.py",
    "tests/browser/test_docs_walks.py",
    "tests/browser/test_json_editor.py",
    "tests/browser/test_late_answers.py",
    "tests/browser/test_stepping.py",
    "tests/browser/test_stewards.py",
    "tests/browser/test_values.py",
    "tests/browser/test_workers.py",
)
"""In a browser, with the long ones: each page in both themes and at the width of a
phone, and what is neither signing nor going back in time.
"""


def passes(*, sweeps: bool) -> dict[str, tuple[str, ...]]:
    """Return the options of the pass by database: which tests, and how many at once."""
    first = (*AT_ONCE, *_without(BROWSER, *LONG))
    if not sweeps:
        return {"sqlite": first, "postgresql": (*AT_ONCE, *CORE)}
    return {
        "sqlite": (*AT_ONCE, *_part(), *LONG),
        "postgresql": (*AT_ONCE, *_part(), *_without(BROWSER, *ON_ONE_DATABASE, *CORE)),
    }


def _part() -> list[str]:
    """Return the option that leaves all but one part of the long tests to other
    commits.
    """
    part = os.environ.get("COUNTERSIGN_PART") or str(int(_commit()[:8], 16) % PARTS)
    if part == "all":
        return []
    return [f"--part={part}/{PARTS}", *(f"--each-part={path}" for path in EACH_COMMIT)]


def _commit() -> str:
    """Return the id of the commit that is checked out, or zeros where there is no
    repository.
    """
    command = ["git", "rev-parse", "HEAD"]
    try:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "0" * 40


def _without(*paths: str) -> list[str]:
    return [f"--ignore={path}" for path in paths]


def main(words: list[str]) -> int:
    """Run the passes, then print what ran where. Returns the exit code. Where `words`
    name tests, only those run.
    """
    is_sweep = "--sweep-short" in words
    words = [word for word in words if word != "--sweep-short"]
    names_tests = any(map(_is_path, words))
    options = passes(sweeps=is_sweep)
    if names_tests:
        options = dict.fromkeys(options, AT_ONCE)

    with tempfile.TemporaryDirectory(prefix="countersign-") as folder:
        todo = []
        for database, chosen in options.items():
            path = Path(folder) / database
            todo.append(Pass(f"on {database}", database, [*chosen, *words], path))
        if not names_tests:
            browser = _browser_pass(words, Path(folder), is_sweep=is_sweep)
            # It goes beside the last pass, each using what the other waits for, and is
            # printed behind it.
            todo[-1].beside = browser
            todo.append(browser)
        lines = [each.run() for each in todo]

    print("\nTests:", *lines, sep="\n  ")
    if not names_tests and not any(map(shutil.which, BROWSERS)):
        print(
            "The browser's tests were skipped for want of a Chromium; on Debian: apt"
            " install chromium"
        )
    return 0 if all(each.good for each in todo) else 1


def _is_path(word: str) -> bool:
    """Return whether a word of the command line names tests."""
    return not word.startswith("-") and (ROOT / word.partition("::")[0]).exists()


def _browser_pass(words: list[str], folder: Path, *, is_sweep: bool) -> "Pass":
    pages = [BROWSER, *_without(*MORE_PAGES)]
    if is_sweep:
        pages = [*_part(), *MORE_PAGES]
    options = [*IN_BROWSER, *pages, *words]
    return Pass("in a browser", "sqlite", options, folder / "browser")


@dataclass
class Pass:
    """One run of pytest: its name, the database, the options, and a path for what it
    leaves. `beside` is started with it, and prints later.
    """

    name: str
    database: str
    options: list[str]
    path: Path
    beside: "Pass | None" = None
    good: bool = False
    _process: "subprocess.Popen[bytes] | None" = None

    def run(self) -> str:
        """Run it, or see it to its end. Returns the line that tells how it ended."""
        if self.beside is not None:
            self.beside.start(to=self.beside.path.with_suffix(".txt"))
        print(f"\n== {self.name} ==", flush=True)
        process = self._process or self.start()
        code = process.wait()
        counts = self._counts()
        if self._process is not None:
            print(self.path.with_suffix(".txt").read_text(errors="replace"), flush=True)
        status = counts.pop("exit status", code)
        self.good = (
            status == 0 and counts.get("passed", 0) + counts.get("skipped", 0) > 0
        )
        facts = [f"{count} {word}" for word, count in counts.items() if count] or [
            "did not run"
        ]
        if status and not (counts.get("failed") or counts.get("error")):
            facts.append(
                f"pytest ended with the status {status}; what it printed above says why"
            )
        if code != status:
            # All tests had ended by then, and said how.
            facts.append(f"the process ended with the code {code} after its tests")
        return f"{self.name:<15} {', '.join(facts)}"

    def start(self, *, to: Path | None = None) -> "subprocess.Popen[bytes]":
        """Start it. What it prints goes into the file `to` and is printed by `run`, or
        goes where ours goes.
        """
        words = [
            "-q",
            f"--database={self.database}",
            f"--counts={self.path.with_suffix('.json')}",
            *self.options,
        ]
        # Without bytecode each of some hundred processes would compile the whole
        # project anew.
        env = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONDONTWRITEBYTECODE"
        }
        env["PYTHONFAULTHANDLER"] = "1"  # a process that dies says where
        command = [sys.executable, "-m", "pytest", *words]
        if to is None:
            return subprocess.Popen(command, cwd=ROOT, env=env)
        with to.open("wb") as out:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT
            )
        return self._process

    def _counts(self) -> dict[str, int]:
        counts = self.path.with_suffix(".json")
        return json.loads(counts.read_text()) if counts.exists() else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
