"""The key of this site is read as the documentation has it made."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.company_login import certificates
from tests.house.commands import ROOT

PAGE = ROOT / "docs" / "login.md"


def test_no_key_is_read_where_none_is_configured(settings: Any) -> None:
    settings.COUNTERSIGN = {}
    assert certificates.own_key() is None


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_the_key_that_the_page_makes_is_taken(tmp_path: Path, settings: Any) -> None:
    (command,) = re.findall(r"^openssl .*$", PAGE.read_text(), re.MULTILINE)
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True)
    parts = [tmp_path / "key.pem", tmp_path / "certificate.pem"]
    file = tmp_path / "own.pem"
    file.write_text("".join(part.read_text() for part in parts))
    settings.COUNTERSIGN = {"SAML_KEY": str(file)}
    own = certificates.own_key()
    assert own is not None
    assert own.private.startswith("-----BEGIN PRIVATE KEY-----")
    assert own.certificate.startswith("MII")
