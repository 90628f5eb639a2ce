"""Where nothing can go on from a checkpoint: what the page says, and the ways that it
offers exist.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import strip_tags

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator.engine import END, START, Graph, registry
from tests.support import cast
from tests.support.forging import tamper
from tests.support.page_forms import fields_of
from tests.support.paid_claims import claim, paid
from tests.support.small_graphs import advanced, graph

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


def url(run: Run, seq: int) -> str:
    return f"/checkpoints/{timeline.get_checkpoint(f'{run.key}:at-{seq}').id}/go-on/"


def words(answer: Any) -> str:
    main = answer.content.decode().split("<main")[1]
    return " ".join(strip_tags(main.replace("<", " <").replace("&#x27;", "'")).split())


def offered(answer: Any) -> str:
    """The page that the first way on leads to."""
    ways = answer.content.decode().split('data-test="ways"')[1]
    return str(re.findall(r'href="(/checkpoints/[^"]+)"', ways)[0]).replace(
        "&amp;", "&"
    )


def changed(name: str, *nodes: str) -> Graph:
    """Another version of `claim`: these nodes, one after another."""
    flow = graph(name, version="2")
    for before, node in zip([START, *nodes[:-1]], nodes, strict=True):
        flow.node(node)(lambda state, ctx: None)
        flow.edge(before, node)
    flow.edge(nodes[-1], END)
    return flow


def deployed(flow: Graph) -> None:
    """Deploy this version, and no other."""
    for key in [key for key in registry._registered if key[0] == flow.name]:
        del registry._registered[key]
    registry.replace(flow)


def test_a_version_that_lacks_what_is_live_lists_what_changed_and_offers_what_exists(
    people: cast.People, browse: Browse
) -> None:
    run = advanced(claim("lacking"))
    client = browse(people.starter)
    deployed(changed("lacking", "first", "other"))
    answer = client.get(url(run, 2), {"how": "rewind"}, follow=True)
    text = words(answer)
    assert answer.status_code == 409
    assert "cannot go on from this checkpoint here" in text
    assert "Version 1 of lacking is not here" in text
    breaking = (
        answer.content.decode()
        .split('aria-label="Changes at which a run stops"')[1]
        .split("</ul>")[0]
    )
    assert "node `ask`: was removed, and the run was about to go on there" in breaking
    assert "node `other`: is new" in text.split("harmless change")[1]
    assert "Finish on version 1: deploy it beside the new one" in text
    assert "igration" not in text, "no migration is registered"
    assert "Patch the state" not in text


def test_an_earlier_checkpoint_is_offered_only_where_the_version_that_is_here_goes_on_from_it(
    people: cast.People, browse: Browse
) -> None:
    run = advanced(claim("earlier"))
    client = browse(people.starter)
    deployed(changed("earlier", "first", "ask"))
    answer = client.get(url(run, 2), follow=True)
    assert "gate of node `ask`: was removed, and people are asked there now" in words(
        answer
    )
    assert "Go on from checkpoint 1 : version 2 can go on from it" in words(answer)
    assert offered(answer).startswith(url(run, 1))
    assert client.get(offered(answer), follow=True).status_code == 200
    deployed(changed("earlier", "nothing"))
    assert (
        "/go-on/"
        not in client.get(url(run, 2), follow=True)
        .content.decode()
        .split('data-test="ways"')[1]
    )


def test_another_version_that_can_go_on_says_so_and_folds_what_is_harmless(
    people: cast.People, browse: Browse
) -> None:
    run = advanced(claim("harmless"))
    client = browse(people.starter)
    assert "is not registered here" not in words(client.get(url(run, 1), follow=True))
    flow = claim("harmless")
    flow.version = "2"
    flow.node("added")(lambda state, ctx: None)
    flow.edge("added", END)
    flow.edge("first", "added")
    deployed(flow)
    answer = client.get(url(run, 1), follow=True)
    assert answer.status_code == 200
    text = words(answer)
    assert (
        "Version 1 is not registered here, so version 2 goes on. Nothing that it needs is missing."
        in text
    )
    assert "node `added`: is new" in text.split("harmless change")[1]
    assert "would stop" not in text


def test_what_a_run_would_stop_at_stands_before_what_is_harmless(
    people: cast.People, browse: Browse
) -> None:
    run = advanced(claim("stopping", quorum=2))
    client = browse(people.starter)
    flow = claim("stopping")
    flow.version = "2"
    deployed(flow)
    text = words(client.get(url(run, 1), follow=True))
    stopping, harmless = text.split("would stop at these changes")[1].split(
        "harmless change"
    )
    assert "gate of node `ask`: quorum 2 became 1" in stopping
    assert "version: 1 became 2" in harmless


def test_a_checkpoint_that_was_cleaned_up_meanwhile_leads_to_the_nearest_kept_one(
    people: cast.People, browse: Browse
) -> None:
    run = paid("cleaned", people)
    client = browse(people.starter)
    gone = url(run, 2)
    fields = fields_of(client.get(gone, follow=True).content.decode())
    Checkpoint.objects.filter(run=run, seq=2).delete()
    for answer in (
        client.post(gone, fields | {"do": "go"}),
        client.get(gone, {"run": run.id, "seq": 2}),
    ):
        assert answer.status_code == 410
        assert "Checkpoint 2 is no longer kept" in words(answer)
        assert offered(answer).startswith(url(run, 1))
    Checkpoint.objects.filter(run=run, seq=1).delete()
    assert offered(client.get(gone, {"run": run.id, "seq": 2})).startswith(url(run, 3))
    for query in (
        {},
        {"run": run.id},
        {"run": run.id, "seq": "x"},
        {"run": run.id, "seq": 3},
        {"run": "no", "seq": 2},
    ):
        assert client.get(gone, query).status_code == 404
    assert client.get(gone, {"run": run.id, "seq": 99}).status_code == 404
    assert browse(people.nobody).get(gone, {"run": run.id, "seq": 2}).status_code == 404
    assert Run.objects.count() == 1


def test_a_broken_seal_is_refused_and_the_last_intact_checkpoint_is_offered(
    people: cast.People, browse: Browse
) -> None:
    run = paid("broken", people)
    client = browse(people.starter)
    fields = fields_of(client.get(url(run, 2), follow=True).content.decode())
    tamper(timeline.get_checkpoint(f"{run.key}:at-2"), superstep=7)
    for answer in (
        client.get(url(run, 2), follow=True),
        client.post(url(run, 2), fields | {"do": "go", "how": "fork"}),
    ):
        assert answer.status_code == 409
        assert "is not what was sealed" in words(answer)
        assert "the last intact one before it" in words(answer)
        assert offered(answer).startswith(url(run, 1))
    assert (
        client.get(
            offered(client.get(url(run, 2), follow=True)), follow=True
        ).status_code
        == 200
    )
    assert browse(people.nobody).get(url(run, 2), follow=True).status_code == 404
    assert Run.objects.count() == 1
