"""The table of verbs: what each entry declares is what its function, its address and its
command take.
"""

import inspect

import pytest
from django.core.management import load_command_class
from django.urls import reverse

from approvals.permissions import RIGHTS
from orchestrator.runs.verb_table import VERBS, Verb
from orchestrator.tokens import SCOPES


def _name_of(verb: Verb) -> str:
    return verb.name


@pytest.mark.parametrize("verb", VERBS, ids=_name_of)
def test_a_function_takes_the_arguments_that_its_verb_declares(verb: Verb) -> None:
    parameters = set(inspect.signature(verb.function).parameters)
    assert {argument.name for argument in verb.arguments} <= parameters
    assert "by" in parameters


@pytest.mark.parametrize("verb", VERBS, ids=_name_of)
def test_a_verb_has_an_address_under_its_name(verb: Verb) -> None:
    address = reverse(f"api:{verb.name}", args=["K-1"])
    assert address == f"/api/v1/{verb.acts_on}s/K-1/{verb.name}/"


@pytest.mark.parametrize("verb", VERBS, ids=_name_of)
def test_a_verb_names_a_right_and_a_scope_that_there_are(verb: Verb) -> None:
    assert verb.right in RIGHTS
    assert verb.scope in SCOPES


def test_no_verb_is_had_for_another_right() -> None:
    needed = {verb.name: (verb.right, verb.scope, verb.creates_run) for verb in VERBS}
    assert needed == {
        "fork": ("steer_run", "steer", True),
        "replay": ("steer_run", "steer", True),
        "rewind": ("steer_run", "steer", False),
        "resume": ("steer_run", "steer", False),
        "cancel": ("steer_run", "steer", False),
        "settle": ("settle_task", "steer", False),
    }


@pytest.mark.parametrize("verb", VERBS, ids=_name_of)
def test_the_command_of_a_verb_has_the_options_that_it_declares(verb: Verb) -> None:
    command = load_command_class("orchestrator", f"{verb.name}_run")
    help_text = command.create_parser("manage.py", f"{verb.name}_run").format_help()
    for argument in verb.arguments:
        assert argument.option in help_text
    assert bool(verb.command_help) == (command.help == verb.command_help)
