"""`python -m tests`: all tests on SQLite, again on a real PostgreSQL, then the browser's. Further words go to pytest.

What needs no database (the engine, the house) runs in the first pass only. A PostgreSQL that does not start is
a failure. The browser has a process of its own: its event loop stays in the thread, where later tests would meet it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BROWSER = "tests/browser"
# Much of a test's time is waiting: for worker processes, and for leases that run out.
AT_ONCE = ("-n", str(2 * (os.cpu_count() or 1)))
PASSES = {
    "sqlite": (*AT_ONCE, f"--ignore={BROWSER}"),
    "postgresql": (*AT_ONCE, f"--ignore={BROWSER}", "--ignore=tests/engine", "--ignore=tests/house"),
}
IN_BROWSER = ("sqlite", BROWSER)


def main(words: list[str]) -> int:
    """Run the passes, then print what ran where. Returns the exit code. Where `words` name tests, only those run."""
    passes = {f"on {database}": (database, *options) for database, options in PASSES.items()}
    if not any((ROOT / word.partition("::")[0]).exists() for word in words if not word.startswith("-")):
        passes["in a browser"] = IN_BROWSER
    lines = []
    good = True
    with tempfile.TemporaryDirectory(prefix="countersign-") as folder:
        for name, (database, *options) in passes.items():
            print(f"\n== {name} ==", flush=True)
            code, counts = _suite(database, [*options, *words], Path(folder) / f"{len(lines)}.json")
            good = good and code == 0 and counts.get("passed", 0) + counts.get("skipped", 0) > 0
            facts = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "did not run"
            lines.append(f"{name:<15} {facts}")
    print("\nTests:", *lines, sep="\n  ")
    return 0 if good else 1


def _suite(database: str, options: list[str], counts: Path) -> tuple[int, dict[str, int]]:
    command = [sys.executable, "-m", "pytest", "-q", f"--database={database}", f"--counts={counts}", *options]
    code = subprocess.run(command, cwd=ROOT).returncode
    return code, json.loads(counts.read_text()) if counts.exists() else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
