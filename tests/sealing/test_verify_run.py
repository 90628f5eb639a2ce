"""A run that nobody touched verifies, in every state it can be in; and the command says so."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from checkpoints.models import Run
from checkpoints.verification import verify_run
from tests import cast
from tests.runner import desk

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_that_completed_verifies(tmp_path: Path) -> None:
    run = desk.start("effects", tmp_path)
    assert run.status == "completed"
    assert verify_run(run.id) == []
