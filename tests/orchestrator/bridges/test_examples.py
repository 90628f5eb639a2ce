"""The examples of docs/bridges.md, each in two processes: people sign between them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.commands import ROOT
from tests.support.bridges import Office
from tests.support.tool_calls import edit, sign

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = (ROOT / "docs" / "bridges.md").read_text()
MODELS = {
    "LangGraph": ("langgraph.checkpoint.sqlite", "", ""),
    "LangChain agents": ("langchain", '"openai:gpt-5"', "langchain"),
    "pydantic-ai": ("pydantic_ai", '"openai:gpt-5"', "pydantic_ai"),
    "OpenAI Agents": ("agents", '"gpt-5"', "openai_agents"),
}
"""The library of each example, the name of its model, and where its fake model is."""

NO_DJANGO = 'import sys\nassert "django" not in sys.modules\n'


def program(heading: str) -> str:
    """Return an example with a fake model in place of the one that it names."""
    library, model, module = MODELS[heading]
    pytest.importorskip(library, reason=f"{library} is not installed")
    section = PAGE.split(f"\n## {heading}\n")[1]
    [code] = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    if not module:
        return str(code)
    assert code.count(model) == 1
    fake = f"from tests.support.agents.{module} import scripted\n"
    return fake + str(code).replace(model, "scripted()")


@pytest.mark.parametrize("heading", MODELS)
def test_an_example_asks_and_another_process_goes_on(
    office: Office, heading: str, tmp_path: Path
) -> None:
    path = tmp_path / "example.py"
    path.write_text(program(heading) + NO_DJANGO)
    environment = {
        **os.environ,
        "COUNTERSIGN_URL": office.url,
        "COUNTERSIGN_TOKEN": office.token,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "PYTHONPATH": str(ROOT),
    }

    def run() -> str:
        done = subprocess.run(
            [sys.executable, path],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run() == "opening\n"
    [asked] = office.asked()
    sign(office, office.client.approval(str(asked.run.id)), edit(invoice="a", amount=8))
    said = run()
    assert said.startswith("approved\n")
    assert "paid 8" in said
    assert office.outcomes() == ["done"]
