"""A wrong value of the environment ends whatever starts with one sentence that names its
variable: never with a traceback, and never with a secret.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from checkpoints.conf import Conf, conf
from orchestrator.checks import check_settings
from tests.house import host
from tests.house.commands import PRODUCTION, run
from tests.house.settings_table import variables

HIDDEN = "hidden-from-everybody"
"""Part of each secret below. No output may have it."""
WRONG = {
    "COUNTERSIGN_ALIVE_FILE": [],
    "COUNTERSIGN_ALLOWED_HOSTS": [],
    "COUNTERSIGN_API_FAILURES": ["0", "many"],
    "COUNTERSIGN_API_FAILURE_SECONDS": ["0", "nan"],
    "COUNTERSIGN_ARCHIVE_FOLDER": [],
    "COUNTERSIGN_AUDIT_HEAD_FILE": [],
    "COUNTERSIGN_BEHIND_PROXY": ["maybe"],
    "COUNTERSIGN_BUNDLE_KEY": [HIDDEN, "aGlkZGVu"],
    "COUNTERSIGN_CALLBACK_HOSTS": ["https://hooks.example.org", "a b", "x" * 200],
    "COUNTERSIGN_CLIENT_ADDRESS_HEADER": ["X Real IP"],
    "COUNTERSIGN_COMPANY_GROUPS": ['{"a": []}', '{"a": 7}', '["a"]', "a=b"],
    "COUNTERSIGN_COMPANY_GROUPS_CLAIM": [],
    "COUNTERSIGN_COMPANY_ID_CLAIM": [],
    "COUNTERSIGN_COMPANY_NAME": [],
    "COUNTERSIGN_COMPANY_NAME_CLAIM": [],
    "COUNTERSIGN_COMPANY_SESSION_HOURS": ["0", "long"],
    "COUNTERSIGN_COMPROMISED_KEYS": ['{"k1": "last week"}', "k1"],
    "COUNTERSIGN_DATABASE_POOL": ["-1", "1.5"],
    "COUNTERSIGN_DATA_DIR": ["/dev/null/var"],
    "COUNTERSIGN_DEBUG": ["maybe"],
    "COUNTERSIGN_DEFAULT_PAYLOADS": ["cellar"],
    "COUNTERSIGN_DEMO": ["maybe"],
    "COUNTERSIGN_DEMO_PAYMENTS_URL": ["ftp://pay"],
    "COUNTERSIGN_DIRECT_STATEMENTS": ["maybe"],
    "COUNTERSIGN_ENCRYPTION_KEYS": [
        json.dumps({"k1": HIDDEN}),
        json.dumps({"k" * 41: HIDDEN}),
        json.dumps([HIDDEN]),
        '{"k1": "x", "k1": "y"}',
    ],
    "COUNTERSIGN_ENVIRONMENT": [],
    "COUNTERSIGN_GRACE_SECONDS": ["-1", "inf"],
    "COUNTERSIGN_HSTS_SECONDS": ["-1"],
    "COUNTERSIGN_HTTPS": ["maybe"],
    "COUNTERSIGN_LEASE_SECONDS": ["0", "long"],
    "COUNTERSIGN_LOCAL_LOGIN": ["maybe", "off"],
    "COUNTERSIGN_LOGIN_FAILURES": ["0"],
    "COUNTERSIGN_LOGIN_PAUSE_SECONDS": ["0"],
    "COUNTERSIGN_LOG_LEVEL": ["loud"],
    "COUNTERSIGN_MAIL_FROM": ["runs", "a@example.org\tB: c"],
    "COUNTERSIGN_MAX_BODY_BYTES": ["12"],
    "COUNTERSIGN_MAX_CLAIMS_WITHOUT_PROGRESS": ["0"],
    "COUNTERSIGN_MAX_VALUE_BYTES": ["0"],
    "COUNTERSIGN_MEMORY_DAYS": ["-1"],
    "COUNTERSIGN_METRICS_TOKEN": [HIDDEN],
    "COUNTERSIGN_NODE_TIMEOUT": ["nan"],
    "COUNTERSIGN_OIDC_CLIENT_ID": [],
    "COUNTERSIGN_OIDC_CLIENT_SECRET": [],
    "COUNTERSIGN_OIDC_ISSUER": ["login.example.org", "http://login.example.org"],
    "COUNTERSIGN_OIDC_SCOPES": ["profile"],
    "COUNTERSIGN_PAYLOADS": [
        json.dumps({"database": {"backend": HIDDEN}}),
        json.dumps({"cellar": HIDDEN}),
        json.dumps({"cellar": {"options": {"key": HIDDEN}}}),
        json.dumps({"cellar": {"backend": "files", "options": HIDDEN}}),
        HIDDEN,
    ],
    "COUNTERSIGN_POLL_SECONDS": ["0"],
    "COUNTERSIGN_PREPARED_STATEMENTS": ["maybe"],
    "COUNTERSIGN_REDIS_URL": [HIDDEN],
    "COUNTERSIGN_SAML_CERTIFICATE": [],
    "COUNTERSIGN_SAML_ISSUER": ["two words"],
    "COUNTERSIGN_SAML_KEY": [],
    "COUNTERSIGN_SAML_SIGN_IN_URL": ["login.example.org", "http://login.example.org"],
    "COUNTERSIGN_SCIM_TOKEN": [],
    "COUNTERSIGN_SECRETS": [f'{{"a": "{HIDDEN}"', f'["{HIDDEN}"]', '{"a": 7}'],
    "COUNTERSIGN_SECRET_KEY": [HIDDEN],
    "COUNTERSIGN_SIGNING_KEYS": [json.dumps({"k1": HIDDEN}), '{"@k1": ""}'],
    "COUNTERSIGN_SITE_URL": ["runs.example.org", "https://", "https://a/?b=c"],
    "COUNTERSIGN_SLICE_SECONDS": ["0"],
    "COUNTERSIGN_SLICE_TIMEOUT": ["0", "soon"],
    "COUNTERSIGN_SOCKETS_PER_PERSON": ["0"],
    "COUNTERSIGN_SOCKET_MESSAGES_PER_SECOND": ["0"],
    "COUNTERSIGN_WAITS_PER_PERSON": ["0"],
    "COUNTERSIGN_ENCRYPT_APPROVALS": ["maybe"],
    "COUNTERSIGN_STATIC_DIR": ["/dev/null/static"],
    "COUNTERSIGN_TIME_STAMP_ROOTS": [],
    "COUNTERSIGN_TIME_STAMP_URL": ["stamps.example.org", "ftp://stamps"],
    "COUNTERSIGN_TIME_ZONE": ["Mars/Olympus", "../etc/passwd"],
    "COUNTERSIGN_TRUSTED_KEYS": [json.dumps({"north": "short"})],
    "COUNTERSIGN_TRUSTED_ORIGINS": ["claims.example.org"],
    "COUNTERSIGN_WEBHOOKS_OVER_HTTP": ["maybe"],
    "COUNTERSIGN_WEBHOOKS_TO_PRIVATE_ADDRESSES": ["maybe"],
    "COUNTERSIGN_WORKERS": ["two", "0", "1.5"],
    "DATABASE_URL": [f"mysql://u:{HIDDEN}@h/n", f"postgres://u:{HIDDEN}@h:port/n"],
}
"""Each variable with values that cannot be used; an empty list where any text can."""
MANAGE = "import runpy; runpy.run_path('manage.py', run_name='__main__')"
DJANGO = "import runpy; runpy.run_module('django', run_name='__main__')"
STARTS = {
    "manage.py check": MANAGE,
    "manage.py worker": MANAGE,
    "python -m django check": DJANGO,
    "python -m django worker": DJANGO,
    "asgi": "import orchestrator.asgi",
    "wsgi": "import orchestrator.wsgi",
}
# Each start has a process of its own, forked from one that has Django in memory: so many
# interpreters that each import it would take minutes.
FORKING = """
import json, os, signal, sys, tempfile, traceback
sys.path.insert(0, "")
import channels.auth, django.core.management.commands.check, django.core.wsgi
import orchestrator.environment, orchestrator.logging, orchestrator.page_policy

assert not django.conf.settings.configured, "each start reads the settings itself"
code, words, wrong = json.load(sys.stdin)

def end(code):
    # As Python ends, but for taking all modules apart, which is most of the time.
    status = 0
    try:
        exec(code, {})
    except SystemExit as ending:
        status = 1 if isinstance(ending.code, str) else ending.code
        print(ending.code, file=sys.stderr)
    except BaseException:
        status = 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)

endings = []
for name, value in wrong:
    with tempfile.TemporaryFile("w+") as file:
        pid = os.fork()
        if not pid:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            os.environ[name] = value
            signal.alarm(30)
            sys.argv = words
            end(code)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        file.seek(0)
        endings.append([status, file.read()])
json.dump(endings, sys.stdout)
"""


def test_each_variable_is_tried() -> None:
    assert set(WRONG) == set(variables())


@pytest.mark.parametrize("start", STARTS)
def test_a_wrong_value_of_each_variable_is_refused_in_one_sentence_whatever_starts(
    start: str, tmp_path: Path
) -> None:
    wrong = [(name, value) for name, values in WRONG.items() for value in values]
    refusals = dict(zip(wrong, _starts(start, wrong, tmp_path), strict=True))
    assert [
        (name, value, output)
        for (name, value), (status, output) in refusals.items()
        if status != 1
        or len(output.splitlines()) != 1
        or not output.startswith(f"Bad settings: {name}")
        or HIDDEN in output
    ] == []


WRONG_IN_DICTIONARY: dict[str, Any] = {
    "API_FAILURES": 0,
    "API_FAILURE_SECONDS": float("nan"),
    "ARCHIVE_FOLDER": 7,
    "AUDIT_HEAD_FILE": Path("/var/log/head"),
    "BUNDLE_KEY": HIDDEN,
    "CLIENT_ADDRESS_HEADER": "X Real IP",
    "COMPANY_GROUPS": {"a": 7},
    "COMPANY_GROUPS_CLAIM": 7,
    "COMPANY_ID_CLAIM": 7,
    "COMPANY_NAME": 7,
    "COMPANY_NAME_CLAIM": 7,
    "COMPANY_SESSION_HOURS": 0,
    "COMPROMISED_KEYS": {"k1": "last week"},
    "DEFAULT_PAYLOADS": "cellar",
    "DIRECT_STATEMENTS": "off",
    "DOORBELL": 7,
    "ENCRYPTION_KEYS": [HIDDEN],
    "ENVIRONMENT": 7,
    "GRACE_SECONDS": -1,
    "LEASE_SECONDS": "15",
    "LOCAL_LOGIN": "off",
    "CALLBACK_HOSTS": ["https://hooks.example.org"],
    "MAIL_FROM": "a@example.org\r\nB: c",
    "MAX_CLAIMS_WITHOUT_PROGRESS": 0,
    "MAX_UPLOAD_BYTES": 0,
    "MAX_VALUE_BYTES": 1.5,
    "MEMORY_DAYS": float("nan"),
    "METRICS_TOKEN": HIDDEN,
    "NODE_TIMEOUT": True,
    "OIDC_CLIENT_ID": 7,
    "OIDC_CLIENT_SECRET": [HIDDEN],
    "OIDC_ISSUER": "http://login.example.org",
    "OIDC_SCOPES": "profile",
    "PAYLOADS": {"cellar": HIDDEN},
    "POLL_SECONDS": 0,
    "SAML_CERTIFICATE": 7,
    "SAML_ISSUER": "two words",
    "SAML_KEY": 7,
    "SAML_SIGN_IN_URL": "http://login.example.org",
    "SCIM_TOKEN": [HIDDEN],
    "SECRETS": {"a": [HIDDEN]},
    "SIGNING_KEYS": {"k1": HIDDEN},
    "SITE_URL": "runs.example.org",
    "SLICE_SECONDS": None,
    "SOCKETS_PER_PERSON": "40",
    "SOCKET_MESSAGES_PER_SECOND": 0,
    "WAITS_PER_PERSON": 0,
    "ENCRYPT_APPROVALS": "yes",
    "TIME_STAMP_ROOTS": 7,
    "TIME_STAMP_URL": "stamps.example.org",
    "TRUSTED_KEYS": {"north": HIDDEN},
    "VERBS_ASK_RIGHTS": 1,
    "WEBHOOKS_OVER_HTTP": "yes",
    "WEBHOOKS_TO_PRIVATE_ADDRESSES": 1,
    "WORKERS": True,
}


def test_each_setting_is_tried() -> None:
    assert set(WRONG_IN_DICTIONARY) == {name.upper() for name in Conf.model_fields}


@pytest.mark.parametrize("name", WRONG_IN_DICTIONARY)
def test_a_host_reads_the_same_sentence_from_the_settings_and_from_the_check(
    name: str, settings: Any
) -> None:
    settings.COUNTERSIGN = {name: WRONG_IN_DICTIONARY[name]}
    with pytest.raises(ImproperlyConfigured) as refused:
        conf()
    sentence = str(refused.value)
    assert sentence.startswith(f"COUNTERSIGN['{name}']")
    assert HIDDEN not in sentence
    assert [error.msg for error in check_settings(None)] == [sentence]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (["WORKERS"], "COUNTERSIGN must be a dictionary, not list"),
        ({"COLOUR": 1}, "COUNTERSIGN has no setting 'COLOUR'; known: API_FAILURES, "),
        ({"workers": 1}, "COUNTERSIGN has no setting 'workers'; known: "),
        ({7: 1}, "COUNTERSIGN has no setting 7; known: "),
    ],
)
def test_what_is_no_setting_is_refused(
    value: Any, sentence: str, settings: Any
) -> None:
    settings.COUNTERSIGN = value
    with pytest.raises(ImproperlyConfigured) as refused:
        conf()
    assert str(refused.value).startswith(sentence)


def test_a_host_with_a_wrong_setting_does_not_start_and_shows_no_traceback(
    tmp_path: Path,
) -> None:
    wrong = f"COUNTERSIGN = {{'SIGNING_KEYS': {{'k1': {HIDDEN!r}}}}}"
    python = Path(sys.executable)
    host.start_project(python, tmp_path / "project", more_settings=wrong)
    done = run(
        python,
        *("-m", "django", "check"),
        cwd=tmp_path / "project",
        PYTHONPATH=str(host.ROOT),
        DJANGO_SETTINGS_MODULE="host.settings",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "Bad settings: COUNTERSIGN['SIGNING_KEYS']['k1'] is not base64"
    )
    assert "Traceback" not in done.stderr
    assert HIDDEN not in done.stderr


def _starts(start: str, wrong: list[tuple[str, str]], folder: Path) -> Any:
    """Return exit code and output of each start with one wrong variable."""
    words = start.removeprefix("python -m ").split()
    environment = {**PRODUCTION, "COUNTERSIGN_DATA_DIR": str(folder)}
    done = run(
        sys.executable,
        "-c",
        FORKING,
        input=json.dumps([STARTS[start], words, wrong]),
        DJANGO_SETTINGS_MODULE="orchestrator.settings",
        **environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
