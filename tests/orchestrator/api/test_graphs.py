"""The catalogue of graphs is for people with a role."""

from tests.support.api_people import Client
from tests.support.cast import People


def test_for_who_has_no_role_there_is_no_graph(nobody: Client, rita: Client) -> None:
    for path in ("graphs/", "graphs/gated/", "graphs/unheard/"):
        answer = nobody.get(path)
        assert answer.status_code == 404
        assert answer.json()["code"] == "unknown_thing"
    assert nobody.get("graphs/gated/").json()["detail"] == "there is no graph gated"
    assert nobody.get("graphs/unheard/").json()["detail"] == "there is no graph unheard"
    assert rita.get("graphs/gated/").status_code == 200


def test_who_has_no_role_does_not_learn_by_starting_which_graphs_there_are(
    people: People,
) -> None:
    client = Client(people.nobody)
    known = client.post("runs/", {"graph": "gated", "input": {"claim_id": "C"}})
    unknown = client.post("runs/", {"graph": "unheard", "input": {"claim_id": "C"}})
    assert known.status_code == unknown.status_code
    assert known.json() == unknown.json()
    assert known.status_code == 403
