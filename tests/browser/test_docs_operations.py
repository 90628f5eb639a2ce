"""The pages of the documentation that operators read, walked word for word: deployment,
recovery, the worker, backups, payloads and the API. Each walk quotes the sentences that
it follows.
"""

import io
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, connections

from approvals import reviews
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Job, Run, Worker
from checkpoints.queue import jobs
from orchestrator import runs, tokens
from orchestrator.engine import END, START, Graph
from orchestrator.runs.unknown_outcomes import carried_keys
from tests.browser.conftest import Page
from tests.browser.docs_walk import DocsPage
from tests.house.words import blocks
from tests.support import claims, run_actions
from tests.support.cast import PASSWORD, People
from tests.support.chain import join_in_a_row
from tests.support.payload_backends import Full
from tests.support.payload_runs import chain
from tests.support.processes import until
from tests.support.rows import a_worker
from tests.support.small_graphs import advanced, graph, registered

Browse = Callable[..., Page]


@pytest.fixture
def boss(transactional_db: None) -> User:
    return User.objects.create_superuser("admin", "admin@example.org", PASSWORD)


def try_to_sign_in(window: Page, name: str, password: str) -> str:
    """Fill in the sign-in page; returns what the page then says."""
    window.open("/login/")
    window.page.fill("#id_username", name)
    window.page.fill("#id_password", password)
    window.page.click("button.sign")
    window.page.wait_for_load_state()
    return str(window.page.inner_text("main"))


def test_deployment_a_locked_log_in_is_unlocked_in_the_admin_and_is_in_the_audit_log(
    people: People, boss: User, browse: Browse
) -> None:
    docs = DocsPage("deployment.md")
    name = people.starter.username
    window = browse(people.starter)
    window.page.context.clear_cookies()
    docs.says(
        "After five wrong passwords for a name at an address, further log-ins of that"
        " name there are refused for fifteen minutes"
    )
    docs.says("This includes the right password and the admin's page")
    for _ in range(5):
        try_to_sign_in(window, name, "wrong")
    assert "Try again in 15 min" in try_to_sign_in(window, name, PASSWORD)

    administrator = browse(boss)
    administrator.open("/admin/")
    app, rows = docs.word("Axes, Access attempts").split(", ")
    page = administrator.page
    page.locator(f"[class*=app-]:has-text('{app}')").get_by_role(
        "link", name=rows, exact=True
    ).click()
    page.check(f"tr:has-text('{name}') input[name=_selected_action]")
    page.select_option("select[name=action]", "delete_selected")
    page.click("button[name=index]")
    page.click("input[type=submit]")
    page.wait_for_url("**/accessattempt/")
    try_to_sign_in(window, name, PASSWORD)
    window.page.wait_for_url(lambda url: "/login/" not in url)

    docs.says(
        "Each wrong password leaves a line `refused_login` in the audit log, the one"
        " that locks `login_locked`"
    )
    for kind, lines in (("refused_login", 4), ("login_locked", 1)):
        administrator.open(f"/audit/?kind={kind}")
        named = page.locator("main").get_by_text("127.0.0.1")
        named.first.wait_for()
        assert AuditLine.objects.filter(kind=kind).count() == lines
    docs.is_walked()


def test_deployment_the_probes_answer_what_the_page_says_of_them(
    people: People, browse: Browse
) -> None:
    docs = DocsPage("deployment.md")
    docs.says("`/healthz`: this web process answers. `/readyz`: it can serve")
    docs.says("it stays so while no worker lives")
    docs.says("`/readyz/workers`: runs are worked on")
    request = browse(people.starter).page.request
    site = {
        path: f"{browse(people.starter).site}{path}"
        for path in ("/healthz", "/readyz", "/readyz/workers")
    }
    assert [request.get(address).status for address in site.values()] == [200, 200, 503]
    a_worker()
    assert request.get(site["/readyz/workers"]).status == 200


def lost_letter() -> Graph:
    """Two letters of which nobody knows whether they went out."""
    flow = graph("lost_letters")
    for name in ("send_letter", "send_copy"):

        @flow.node(name, effect="external")
        def send(state: Any, ctx: Any) -> None:
            """Send the letter."""
            raise ConnectionError("the line broke")

        flow.edge(START, name)
        flow.edge(name, END)
    return flow


def test_recovery_the_pages_list_what_is_unknown_by_its_key_and_ask_which_is_true(
    people: People, browse: Browse
) -> None:
    docs = DocsPage("recovery.md")
    run = advanced(lost_letter())
    assert run.status == Status.UNKNOWN
    keys = {row.task: key for row, key in carried_keys(run)}
    assert len(keys) == 2
    reader = browse(people.auditor)
    operator = browse(people.starter)
    docs.says(
        "Its page, `GET runs/{run}/` and `run_status` list each such task with the key"
        " that its call carried."
    )
    for window in (reader, operator):
        window.open(f"/runs/{run.id}/")
        listed = window.page.inner_text("[data-test=unknown]")
        assert all(task in listed and key in listed for task, key in keys.items())
    answer = operator.page.request.get(f"{operator.site}/api/v1/runs/{run.id}/").json()
    assert {task["task"]: task["idempotency_key"] for task in answer["unknown"]} == keys
    output = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("run_status", run.key, stdout=output)
    assert all(
        task in output.getvalue() and key in output.getvalue()
        for task, key in keys.items()
    )

    page = operator.page
    page.click("text=Settle what happened")
    docs.says("A person looks in the outside world, and settles each task by itself")
    docs.says(
        "| it happened, with this output | the output is checked like a node's return and used"
    )
    docs.says("| it did not | the task runs again, under the same key |")
    copy, letter = (
        page.locator(f"form:has(input[value='{task}'])")
        for task in ("send_copy:1:0", "send_letter:1:0")
    )
    copy.get_by_text("It happened").click()
    copy.locator("[name=output]").fill('{"letter": "sent"}')
    docs.says("Both need a reason, which is kept in the log.")
    assert copy.locator("[name=reason]").get_attribute("required") is not None
    copy.locator("[name=reason]").fill("the copy arrived")
    copy.locator("button.sign").click()
    letter.get_by_text("It did not").click()
    letter.locator("[name=reason]").fill("it is not in the outbox")
    letter.locator("button.sign").click()
    page.wait_for_url(f"**/runs/{run.id}/")
    docs.says(
        "An outcome is settled when the run has stopped; the last one queues it again."
    )
    page.wait_for_selector("#run-head :text('Queued')")
    reasons = [
        line["reason"] for line in run_actions.event_payloads(run, "task_settled")
    ]
    assert reasons == ["the copy arrived", "it is not in the outbox"]
    assert operator.complaints == reader.complaints == []


def test_recovery_a_failed_run_says_where_and_why_is_resumed_and_cancelled_for_a_reason(
    people: People, browse: Browse
) -> None:
    docs = DocsPage("recovery.md")
    claims.BROKEN.add("read")
    run = claims.paused("CLM-1", people.starter)
    operator = browse(people.starter)
    page = operator.page
    operator.open(f"/runs/{run.id}/")
    docs.says("The run is `failed`, and its page says at which node and why.")
    problem = page.inner_text(".problem")
    assert "read failed" in problem
    assert "the register does not answer" in problem
    docs.says(
        "Resuming (`runs.resume`, the page, `POST runs/{run}/resume/`, `resume_run`)"
        " queues it again."
    )
    claims.BROKEN.clear()
    page.click(".problem summary:has-text('Resume')")
    page.click("text=Resume this run")
    page.wait_for_selector("#run-head :text('Queued')")
    assert runs.advance(run.id).status == Status.PAUSED

    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/CLM-1/")
    docs.says(
        "`runs.cancel`, the run's page, `POST runs/{run}/cancel/` and `cancel_run` end"
        " a run for good."
    )
    operator.open(f"/runs/{run.id}/cancel/")
    page.fill("#reason", "the order was withdrawn")
    page.click("button:has-text('Cancel this run')")
    page.wait_for_selector("#run-head :text('Cancelled')")
    docs.says("A reason that is given stands in its log.")
    operator.open(f"/runs/{run.id}/?tab=events")
    page.locator("main").get_by_text("the order was withdrawn").first.wait_for()
    docs.says("What the run asks people is withdrawn at once.")
    reviewer.open("/reviews/CLM-1/")
    reviewer.page.locator("main").get_by_text("withdrawn").first.wait_for()
    docs.says("a cancelled run cannot be resumed")
    operator.open(f"/runs/{run.id}/")
    assert (
        page.get_by_role("button", name="Resume").count()
        == page.locator(".problem").count()
        == 0
    )


def test_recovery_a_decision_on_what_has_changed_meanwhile_comes_back(
    people: People, browse: Browse
) -> None:
    docs = DocsPage("recovery.md")
    registered(claims.graph_of("two_sign", quorum=2))
    run = claims.paused("CLM-1", people.starter, graph="two_sign")
    # Without scripts nothing tells the page of the edit.
    reviewer = browse(people.reviewer, java_script_enabled=False)
    reviewer.open("/reviews/CLM-1/")
    page = reviewer.page
    for box in page.locator("input[value=approve]").all():
        box.check(force=True)
    edited = next(row for row in run_actions.pending(run) if row.channel == "count")
    reviews.sign(
        run.id,
        [
            {
                "write": str(edited.write),
                "hash": edited.hash,
                "verdict": "edit",
                "value": 4,
            }
        ],
        by=people.second_reviewer,
    )
    docs.says(
        "A decision that names another hash does not count. Its author is told that the write"
    )
    docs.says(
        "the receipt says of each whether the decision counted, came back, or found"
        " the write settled by others"
    )
    page.click("#sign")
    docs.sees(page, "came back", within="main")
    docs.is_walked("this")


def test_worker_its_page_names_what_nobody_can_take_and_shows_jobs_and_what_drains(
    people: People, boss: User, browse: Browse
) -> None:
    docs = DocsPage("worker.md")
    window = browse(boss)
    page = window.page
    flow = graph("stranded", version="7")
    flow.node("look")(lambda state, ctx: None)
    join_in_a_row(flow, "look")
    registered(flow)
    runs.start("stranded", {})
    here = a_worker(host="rome")
    there = a_worker(host="oslo", pid=2)
    window.open("/workers/")
    docs.says("The workers page names what no live worker can take.")
    missing = page.inner_text("main [role=alert]")
    assert "stranded version 7" in " ".join(missing.split())

    docs.says(
        "The workers page shows jobs with their progress, the admin all their columns."
    )
    jobs.add_job("verify_runs", name="walked", priority=3)
    job = Job.objects.get(name="walked")
    Job.objects.filter(id=job.id).update(
        progress={"done": 12, "total": 50, "note": "runs"}
    )
    window.open("/workers/")
    assert "12 of 50" in page.inner_text(f"tr:has-text('{job.kind}')")
    window.open(f"/admin/checkpoints/job/{job.id}/change/")
    shown = page.inner_text("#content").lower()
    columns = [field.verbose_name for field in Job._meta.fields if field.editable]
    assert [name for name in columns if str(name) not in shown] == []

    docs.says(
        "`manage.py drain` asks for the same through the database: all workers, or"
        " those of one `--host`."
    )
    docs.says("It returns when they have ended.")
    output = io.StringIO()
    draining = threading.Thread(
        target=in_a_thread(lambda: call_command("drain", host="rome", stdout=output))
    )
    draining.start()
    until(
        lambda: Worker.objects.get(id=here.id).draining, what="the worker of that host"
    )
    window.open("/workers/")
    assert "Draining" in page.inner_text("tr:has-text('rome')")
    assert "Alive" in page.inner_text("tr:has-text('oslo')")
    Worker.objects.filter(id=here.id).update(stopped_at=here.heartbeat_at)
    draining.join(20)
    assert "All have ended." in output.getvalue()
    assert not Worker.objects.get(id=there.id).draining
    docs.is_walked()


def in_a_thread(act: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            act()
        finally:
            connections.close_all()

    return run


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="the command copies the file of SQLite"
)
def test_backup_after_restored_the_pages_show_what_stopped_and_a_person_resumes_it(
    tmp_path: Path, people: People, boss: User, browse: Browse
) -> None:
    docs = DocsPage("backup.md")
    run = claims.paused("CLM-1", people.starter)
    output = io.StringIO()
    call_command("backup", str(tmp_path / "monday.sqlite3"), stdout=output)
    docs.says(
        "`manage.py backup` prints this list with the names of your installation."
    )
    docs.says("`manage.py restored`")
    call_command("restored", "--reason", "disk of host 3 broke", stdout=io.StringIO())
    operator = browse(boss)
    page = operator.page
    operator.open(f"/runs/{run.id}/")
    docs.says(
        "| the same, without one | `failed`, with the code `database_restored` | a"
        " person has looked and resumes it;"
    )
    assert Run.objects.get(id=run.id).error_code == "database_restored"
    problem = page.inner_text(".problem")
    assert "The database was put back" in problem
    assert "look outside before it goes on" in problem
    docs.says("what people are asked stays open, and can be signed meanwhile")
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/CLM-1/")
    for box in reviewer.page.locator("input[value=approve]").all():
        box.check(force=True)
    reviewer.page.click("#sign")
    reviewer.page.wait_for_url("**/receipts/**")
    operator.open(f"/runs/{run.id}/")
    page.click(".problem summary:has-text('Resume')")
    page.click("text=Resume this run")
    page.wait_for_selector("#run-head :text('Queued')")
    assert runs.advance(run.id).status == Status.COMPLETED
    docs.says("The audit log gets the line `database_restored`")
    operator.open("/audit/?kind=database_restored")
    page.locator("main").get_by_text("disk of host 3 broke").first.wait_for()
    docs.is_walked()


def test_payloads_a_run_whose_save_failed_says_what_was_refused_and_one_that_went_on_is_marked(
    cellar: Path, people: People, browse: Browse
) -> None:
    docs = DocsPage("payloads.md")
    stopped = runs.start(
        registered(chain("stops", "a", "b", snapshot=1)).name, {}, by=people.starter
    )
    Full.left = 0
    runs.advance(stopped.id)
    operator = browse(people.starter)
    page = operator.page
    operator.open(f"/runs/{stopped.id}/")
    docs.says(
        "The run is `failed` with the code `save_failed`, what was refused and what to do"
    )
    problem = page.inner_text(".problem")
    assert "No space left on device" in problem
    assert "then resume" in problem
    docs.says("A failed run is resumed when the cause is mended.")
    Full.left = None
    page.click(".problem summary:has-text('Resume')")
    page.click("text=Resume this run")
    page.wait_for_selector("#run-head :text('Queued')")
    assert runs.advance(stopped.id).status == Status.COMPLETED

    marked = runs.advance(
        runs.start(registered(full_at_b()).name, {}, by=people.starter).id
    )
    operator.open(f"/runs/{marked.id}/")
    docs.says("The run is then marked: `durable` is false, on its page and in the API")
    assert "Not durable." in page.inner_text("[data-test=not-durable]")
    assert (
        operator.page.request.get(f"{operator.site}/api/v1/runs/{marked.id}/").json()[
            "durable"
        ]
        is False
    )
    docs.says("and a `warning` in its log names the superstep")
    operator.open(f"/runs/{marked.id}/?tab=events")
    (warning,) = page.locator(
        "[data-test=events] li:has-text('warning')"
    ).first.all_inner_texts()
    assert "superstep 2" in warning
    docs.is_walked("bytes")


def full_at_b() -> Graph:
    """a → b → c, which goes on where the disk is full while b runs."""
    flow = graph("goes_on", payloads="cellar", on_save_error="continue")
    for name in "abc":

        @flow.node(name)
        def work(state: Any, ctx: Any) -> None:
            Full.left = 0 if ctx.node == "b" else None

    join_in_a_row(flow, *"abc")
    return flow


CALL = """async ([path, token]) => {
    const headers = {'Content-Type': 'application/json', ...(token ? {'X-CSRFToken': token} : {})}
    const input = {claim_id: 'CLM-9', amount: '1'}
    const body = JSON.stringify({graph: 'page_claim', input, key: 'CLM-9'})
    return (await fetch(path, {method: 'POST', headers, body})).status
}"""


def test_api_a_browser_calls_it_by_its_session_and_a_token_is_revoked_in_the_admin(
    people: People, boss: User, browse: Browse
) -> None:
    docs = DocsPage("api.md")
    operator = browse(people.starter)
    page = operator.page
    operator.open("/runs/")
    docs.says("its POSTs need the CSRF token (header `X-CSRFToken`)")
    (csrf,) = (
        cookie["value"]
        for cookie in page.context.cookies()
        if cookie["name"] == "csrftoken"
    )
    assert page.evaluate(CALL, ["/api/v1/runs/", ""]) == 403
    assert page.evaluate(CALL, ["/api/v1/runs/", csrf]) == 201
    assert Run.objects.get(key="CLM-9").started_by == people.starter
    docs.says("The machine-readable description (OpenAPI 3.1) is at `/api/v1/schema/`")
    assert (
        page.request.get(f"{operator.site}/api/v1/schema/")
        .json()["openapi"]
        .startswith("3.1")
    )

    token = tokens.make_token(people.starter, name="nightly import")
    headers = {"Authorization": f"Token {token}"}
    graphs = f"{operator.site}/api/v1/graphs/"
    stranger = browse(boss)
    stranger.open("/admin/")
    assert page.request.get(graphs, headers=headers).status == 200
    docs.says("A token is revoked in the Django admin.")
    stranger.page.locator("main, #content").first.get_by_role(
        "link", name=re.compile("^api tokens", re.IGNORECASE)
    ).click()
    stranger.page.check("tr:has-text('nightly import') input[name=_selected_action]")
    stranger.page.select_option("select[name=action]", label="Revoke")
    stranger.page.click("button[name=index]")
    stranger.page.wait_for_load_state()
    assert tokens.find_token(token) is None
    assert page.request.get(graphs, headers=headers).status == 401


def test_use_in_your_project_brings_the_admin_the_sign_in_page_and_the_middleware(
    people: People, boss: User, browse: Browse
) -> None:
    docs = DocsPage("use-in-your-project.md")
    settings = blocks(docs.name, "python")[0]
    window = browse(boss)
    page = window.page
    page.context.clear_cookies()
    docs.says("That brings the Django admin at `/admin/` and the sign-in page as well.")
    assert 'LOGIN_URL = "login"' in settings
    window.open("/runs/")
    page.wait_for_url("**/login/?next=/runs/")
    window.open("/admin/")
    page.wait_for_url("**/admin/login/**")
    window.sign_in(boss)

    assert "our pages load scripts and styles from your site alone" in settings
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    window.open("/runs/")
    assert hosts == {urlsplit(window.site).netloc}
    policy = page.request.get(f"{window.site}/runs/").headers["content-security-policy"]
    assert "script-src 'self'" in policy

    assert (
        "the audit log names who changes accounts, groups and permissions" in settings
    )
    window.open("/admin/auth/user/add/")
    page.fill("#id_username", "newcomer")
    page.fill("#id_password1", PASSWORD)
    page.fill("#id_password2", PASSWORD)
    page.click("input[name=_save]")
    page.wait_for_url("**/change/")
    page.check("#id_is_staff")
    page.click("input[name=_save]")
    window.open("/audit/")
    page.locator(
        "[data-test=line]:has-text('newcomer'):has-text('admin')"
    ).first.wait_for()
    docs.is_walked()
    assert window.complaints == []
