"""Who installs the wheel gets everything. What a project makes of it is in
`test_own_project`.
"""

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house import host


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_module_the_licences_and_nothing_else(
    wheel: Path,
) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (facts,) = [
            archive.read(name).decode()
            for name in names
            if name.endswith("dist-info/METADATA")
        ]
    assert {name for name in names if name.endswith(".py")} == host.our_modules()
    assert {
        name.partition("licenses/")[2] for name in names if "/licenses/" in name
    } == {
        "LICENSE",
        "NOTICE",
        "static/fonts/OFL.txt",
        "static/vendor/MIT.txt",
    }
    assert "License-Expression: Apache-2.0 AND OFL-1.1 AND MIT" in facts.splitlines()
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "orchestrator",
        "approvals",
        "checkpoints",
        "django_countersign",
    }
