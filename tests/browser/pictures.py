"""The pictures of the documentation: `python -m tests.browser.pictures` starts the demo,
and writes what its people see to docs/pictures.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.__main__ import BROWSERS
from tests.house.programs import free_port, staying, wait_for
from tests.support.processes import until

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
WINDOW = {"width": 1280, "height": 860}
PATIENCE_MS = 60_000
SIGNED_IN = re.compile(r"/login/")


def main() -> None:
    """Take all pictures anew."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        sys.exit("no chromium is installed")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data, demo(Path(data)) as address:
        passwords = passwords_in(Path(data) / "sign-ins.txt")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox"]
            )
            reviewer = signed_in(browser, address, "rita", passwords["rita"])
            take_inbox(reviewer, address)
            take_review(reviewer)
            operator = signed_in(browser, address, "olive", passwords["olive"])
            take_timeline(operator, address)
            browser.close()


@contextmanager
def demo(data: Path) -> Iterator[str]:
    """Serve the demo, with rows of its own in this folder, as long as the block lasts."""
    port = free_port()
    log = data / "log"
    command = [sys.executable, "manage.py", "up", "--demo", "--port", str(port)]
    env = {**os.environ, "COUNTERSIGN_DATA_DIR": str(data)}
    with staying(command, cwd=ROOT, env=env, log=log):
        wait_for(port, log)
        # The list is written once the demo's runs have come to rest.
        until((data / "sign-ins.txt").exists, seconds=90, what="the list of people")
        yield f"http://127.0.0.1:{port}"


def passwords_in(file: Path) -> dict[str, str]:
    """Return the password of each person in the demo's line, by name."""
    return dict(re.findall(r"(\w+) ([^\s,]+)(?:,|$)", file.read_text()))


def signed_in(browser: Any, address: str, name: str, password: str) -> Any:
    """Return a page in which this person is signed in."""
    context = browser.new_context(viewport=WINDOW, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{address}/login/")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("button.sign")
    page.wait_for_url(lambda url: not SIGNED_IN.search(url))
    return page


def take_inbox(page: Any, address: str) -> None:
    page.goto(f"{address}/reviews/")
    page.screenshot(path=FOLDER / "inbox.png")


def take_review(page: Any) -> None:
    page.get_by_role("link", name=re.compile("settlement of")).first.click()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=FOLDER / "review.png")


def take_timeline(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/?status=completed")
    page.get_by_role("link", name=re.compile("Claim CLM")).first.click()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=FOLDER / "timeline.png")


if __name__ == "__main__":
    main()
