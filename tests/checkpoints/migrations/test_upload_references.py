"""The step to references of uploads: what runs name that are there already is known behind it, so nothing is swept."""

from importlib import import_module
from io import BytesIO
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from django.apps import apps

from checkpoints import migrations, uploads
from checkpoints.models import RunKey, UploadReference
from orchestrator import runs
from tests.support import claims, secret_claim
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


def step() -> Any:
    name = next(one.name for one in iter_modules(migrations.__path__) if one.name.endswith("_upload_references"))
    return import_module(f"{migrations.__name__}.{name}").note_runs_that_are_there


def upload() -> dict[str, Any]:
    return uploads.save_upload(BytesIO(b"a letter"), name="letter.txt", by=None)


def noted() -> set[tuple[Any, str]]:
    return {(run, str(upload)) for run, upload in UploadReference.objects.values_list("run", "upload")}


@pytest.mark.parametrize("encrypted", [False, True])
def test_runs_that_are_there_keep_their_files(
    settings: Any, configure: Any, tmp_path: Path, encrypted: bool
) -> None:
    settings.MEDIA_ROOT = tmp_path
    configure(**secret_claim.keys())
    made = claims.with_a_file("with_letters", required=True)
    made.encrypted = encrypted
    with claims.registered(made):
        first, second, spare = upload(), upload(), upload()
        mine = {(runs.start(made.name, {"letter": ref}).id, ref["file"]) for ref in (first, second, first)}
        assert noted() == mine
        UploadReference.objects.all().delete()
        step()(apps, None)
        assert noted() == mine
        if encrypted:
            # Nobody can tell any more which file it names, so all that were there then stay.
            UploadReference.objects.all().delete()
            RunKey.objects.update(wrapped=b"")
            configure(**secret_claim.keys(), LEASE_SECONDS=14)
            step()(apps, None)
            assert noted() == {(run, ref["file"]) for run, _ in mine for ref in (first, second, spare)}


def test_where_nothing_was_uploaded_no_run_is_read() -> None:
    with counted() as sent:
        step()(apps, None)
    assert not [sql for sql in sent if "checkpoints_run" in sql]
