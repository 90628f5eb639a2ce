"""deploy/compose.yaml, as Docker Compose reads it: one migration, then a web process and
workers, with nothing to start without secrets.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpoints.conf import Variables
from orchestrator.environment import variable_of
from tests.deploy.programs import program
from tests.house.commands import PRODUCTION, ROOT

FOLDER = ROOT / "deploy"
SECRETS = ("COUNTERSIGN_SECRET_KEY", "POSTGRES_PASSWORD", "COUNTERSIGN_ALLOWED_HOSTS")
KILL_SECONDS = 5
"""After the grace period a worker kills what hangs within this time."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the file, and the example of its variables as it is."""
    shutil.copy(FOLDER / "compose.yaml", tmp_path)
    shutil.copy(FOLDER / "env.example", tmp_path / ".env")
    return tmp_path


def _rendered(site: Path) -> "subprocess.CompletedProcess[str]":
    compose = program("docker-compose")
    return subprocess.run(
        [compose, "config", "--format=json"],
        cwd=site,
        env={"HOME": str(site)},
        capture_output=True,
        text=True,
    )


def _fill_in(site: Path) -> None:
    file = site / ".env"
    text = file.read_text()
    for name in SECRETS:
        assert f"\n{name}=\n" in text
        text = text.replace(f"\n{name}=\n", f"\n{name}=filled-in\n")
    file.write_text(text)


def _seconds(duration: str) -> int:
    minutes, _, seconds = duration.rpartition("m")
    return 60 * int(minutes or 0) + int(seconds.removesuffix("s"))


def test_nothing_starts_before_the_secrets_are_filled_in(site: Path) -> None:
    refused = _rendered(site)
    assert refused.returncode != 0
    for name in SECRETS:
        assert name in refused.stderr


def test_the_example_has_no_secret_and_only_variables_that_there_are() -> None:
    lines = (FOLDER / "env.example").read_text().splitlines()
    words = [line.partition("=") for line in lines if line and not line.startswith("#")]
    values = {name: value for name, _, value in words}
    assert {name for name, value in values.items() if not value} == set(SECRETS)
    settings = {variable_of(name) for name in Variables.model_fields}
    own = {"COUNTERSIGN_BEHIND_PROXY", "POSTGRES_PASSWORD", *PRODUCTION}
    assert set(values) <= settings | own


def test_web_and_workers_wait_for_one_migration(site: Path) -> None:
    _fill_in(site)
    services = _services(site)
    assert set(services) == {"database", "migrate", "web", "worker"}
    assert services["migrate"]["restart"] == "no"
    for name in ("web", "worker"):
        conditions = {
            other: facts["condition"]
            for other, facts in services[name]["depends_on"].items()
        }
        assert conditions == {
            "database": "service_healthy",
            "migrate": "service_completed_successfully",
        }
    assert services["worker"]["deploy"]["replicas"] == 2


def test_each_process_of_ours_is_confined_and_shares_the_files(site: Path) -> None:
    _fill_in(site)
    services = _services(site)
    for name in ("migrate", "web", "worker"):
        facts = services[name]
        assert facts["read_only"] is True
        assert facts["cap_drop"] == ["ALL"]
        assert facts["security_opt"] == ["no-new-privileges:true"]
        assert [volume["target"] for volume in facts["volumes"]] == ["/data"]
    (port,) = services["web"]["ports"]
    assert port["host_ip"] == "127.0.0.1"
    assert "ports" not in services["database"]


def test_a_worker_has_the_time_that_it_needs_to_stop(site: Path) -> None:
    _fill_in(site)
    worker = _services(site)["worker"]
    grace = float(worker["environment"]["COUNTERSIGN_GRACE_SECONDS"])
    assert _seconds(worker["stop_grace_period"]) > grace + KILL_SECONDS


def test_each_kind_of_process_is_looked_at_as_what_it_is(site: Path) -> None:
    _fill_in(site)
    services = _services(site)
    for role in ("web", "worker"):
        check = services[role]["healthcheck"]
        assert check["test"] == ["CMD", "countersign", "healthy", role]
        assert check["retries"] > 1


def test_it_is_yaml_without_a_tool_too() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert services["database"]["image"] == "postgres:18"
    # From version 18 on the image keeps its data in a folder of this one.
    assert services["database"]["volumes"] == ["database:/var/lib/postgresql"]


def _services(site: Path) -> dict[str, Any]:
    rendered = _rendered(site)
    assert rendered.returncode == 0, rendered.stderr
    services: dict[str, Any] = json.loads(rendered.stdout)["services"]
    return services
