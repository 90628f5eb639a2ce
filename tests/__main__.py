"""`python -m tests`: the whole suite on SQLite and again on a real PostgreSQL. Further words go to pytest.

What needs no database (the engine, the house) runs in the first pass only. A PostgreSQL that does not start is
a failure.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.pgplugin import DATABASES

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_DATABASE = ("tests/engine", "tests/house")
SPEED = ("-n", "2")


def main(words: list[str]) -> int:
    """Run both passes, then print what ran where. Returns the exit code."""
    lines = []
    good = True
    with tempfile.TemporaryDirectory(prefix="countersign-") as folder:
        for database in DATABASES:
            code, counts = _suite(database, words, Path(folder) / f"{database}.json")
            good = good and code == 0 and counts.get("passed", 0) > 0
            told = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "did not run"
            lines.append(f"{database:<11} {told}")
    print("\nTests by database:", *lines, sep="\n  ")
    return 0 if good else 1


def _suite(database: str, words: list[str], counts: Path) -> tuple[int, dict[str, int]]:
    skipped = [] if database == DATABASES[0] else [f"--ignore={folder}" for folder in WITHOUT_DATABASE]
    command = [sys.executable, "-m", "pytest", *SPEED, f"--database={database}", f"--counts={counts}", *skipped, *words]
    print(f"\n== {database} ==", flush=True)
    code = subprocess.run(command, cwd=ROOT).returncode
    return code, json.loads(counts.read_text()) if counts.exists() else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
