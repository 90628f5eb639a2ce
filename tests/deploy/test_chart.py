"""The chart of deploy/helm, rendered by Helm itself and read against the schemas of
Kubernetes.
"""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpoints.conf import Conf
from tests.deploy.container import USER
from tests.house.commands import ROOT

helm = pytest.importorskip("helm_python")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

CHART = ROOT / "deploy" / "helm" / "countersign"
LEAST: dict[str, Any] = {
    "allowedHosts": ["runs.example.org", "runs.example.com"],
    "secretName": "countersign-keys",
    "data": {"existingClaim": "countersign-files"},
}
"""The values that an installation must name."""
ALL: dict[str, Any] = {
    **LEAST,
    "imagePullSecrets": [{"name": "registry"}],
    "env": {"COUNTERSIGN_TIME_ZONE": "Europe/Berlin", "COUNTERSIGN_LEASE_SECONDS": 20},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecretName": "certificate"},
    "web": {"autoscaling": {"enabled": True}},
    "worker": {"keda": {"enabled": True}, "graceSeconds": 90},
    "serviceAccount": {"annotations": {"example.org/role": "countersign"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "runs", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}
VERSION = "1.32"
KILL_SECONDS = 5
"""After the grace period a worker kills what hangs within this time."""


def _objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what would be sent to the cluster, without the notes for the operator."""
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render(values, name="shop", namespace="runs")
    files = [text for name, text in rendered.items() if name.endswith(".yaml")]
    documents = itertools.chain.from_iterable(map(yaml.safe_load_all, files))
    return [document for document in documents if document]


def _by_name(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{each['kind']}/{each['metadata']['name']}": each for each in _objects(values)
    }


def _pods(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the pods of the deployments and of the job, by the name of the first
    container.
    """
    templates = [each.get("spec", {}).get("template") for each in _objects(values)]
    specs = [template["spec"] for template in templates if template]
    return {spec["containers"][0]["name"]: spec for spec in specs}


def test_helm_has_only_the_missing_icon_to_name(tmp_path: Path) -> None:
    # Its check renders with the chart's own values, which name no installation.
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    copy = tmp_path / "countersign"
    _copy_with_values(copy, {**values, **LEAST})
    result = helm.lint(str(copy))
    assert [each["error"] for each in result["messages"]] == ["icon is recommended"]


def _copy_with_values(copy: Path, values: dict[str, Any]) -> None:
    (copy / "templates").mkdir(parents=True)
    for file in CHART.rglob("*.*"):
        if file.is_file():
            (copy / file.relative_to(CHART)).write_text(file.read_text())
    (copy / "values.yaml").write_text(yaml.safe_dump(values))


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_every_object_is_one_that_kubernetes_takes(values: dict[str, Any]) -> None:
    for document in _objects(values):
        # The schema of KEDA's objects is not among those of Kubernetes.
        if document["kind"] != "ScaledObject":
            kubernetes_validate.validate(document, VERSION, strict=True)


def test_what_an_installation_consists_of() -> None:
    assert set(_by_name(LEAST)) == {
        "Deployment/shop-countersign-web",
        "Deployment/shop-countersign-worker",
        "Job/shop-countersign-migrate",
        "PodDisruptionBudget/shop-countersign-web",
        "PodDisruptionBudget/shop-countersign-worker",
        "Service/shop-countersign",
        "ServiceAccount/shop-countersign",
    }
    assert set(_by_name(ALL)) - set(_by_name(LEAST)) == {
        "HorizontalPodAutoscaler/shop-countersign-web",
        "Ingress/shop-countersign",
        "ScaledObject/shop-countersign-worker",
    }


@pytest.mark.parametrize(
    ("allowed", "sent"), [("*", "localhost"), (".example.org", "example.org")]
)
def test_a_probe_sends_a_host_that_the_web_process_answers(
    allowed: str, sent: str
) -> None:
    [web] = _pods({**LEAST, "allowedHosts": [allowed]})["web"]["containers"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        headers = web[name]["httpGet"]["httpHeaders"]
        assert headers == [{"name": "Host", "value": sent}]


@pytest.mark.parametrize(
    ("missing", "word"),
    [
        ("allowedHosts", "allowedHosts"),
        ("secretName", "secretName"),
        ("data", "data.existingClaim"),
    ],
)
def test_what_must_be_named_is_asked_for(missing: str, word: str) -> None:
    values = {name: value for name, value in LEAST.items() if name != missing}
    with pytest.raises(helm.HelmError, match=re.escape(word)):
        _objects(values)


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_no_pod_has_a_right_or_a_secret_of_its_own(values: dict[str, Any]) -> None:
    pods = _pods(values)
    assert set(pods) == {"web", "worker", "migrate"}
    for spec in pods.values():
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == USER
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["envFrom"] == [{"secretRef": {"name": "countersign-keys"}}]
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        assert mounted == {"/tmp", "/data"}
        names = {each["name"] for each in container["env"]}
        assert not {"COUNTERSIGN_SECRET_KEY", "DATABASE_URL"} & names


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_a_worker_has_the_time_that_it_needs_to_stop(values: dict[str, Any]) -> None:
    worker = _pods(values)["worker"]
    env = {each["name"]: each["value"] for each in worker["containers"][0]["env"]}
    grace = float(env["COUNTERSIGN_GRACE_SECONDS"])
    assert worker["terminationGracePeriodSeconds"] > grace + KILL_SECONDS
    # A probe that fails for as long as a lease must not end it.
    probe = worker["containers"][0]["livenessProbe"]
    assert probe["exec"]["command"] == ["countersign", "healthy", "worker"]
    start = worker["containers"][0]["startupProbe"]
    assert start["exec"] == probe["exec"]
    patience = probe["periodSeconds"] * probe["failureThreshold"]
    assert patience > 10 * Conf().lease_seconds


def test_probes_name_a_host_that_is_answered() -> None:
    (web,) = _pods(LEAST)["web"]["containers"]
    paths = {}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        door = web[name]["httpGet"]
        paths[name] = door["path"]
        assert door["httpHeaders"] == [{"name": "Host", "value": "runs.example.org"}]
    # A web process without a database must not be started again and again.
    assert paths == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }


def test_the_database_is_migrated_before_anything_else() -> None:
    job = _by_name(LEAST)["Job/shop-countersign-migrate"]
    hooks = job["metadata"]["annotations"]["helm.sh/hook"]
    assert hooks == "pre-install,pre-upgrade"
    # What else belongs to the release is not there yet.
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "default"


def test_what_is_scaled_by_itself_has_no_number_of_its_own() -> None:
    scaled = _by_name(ALL)
    assert "replicas" not in scaled["Deployment/shop-countersign-web"]["spec"]
    assert "replicas" not in scaled["Deployment/shop-countersign-worker"]["spec"]
    fixed = _by_name(LEAST)
    assert fixed["Deployment/shop-countersign-worker"]["spec"]["replicas"] == 2


def test_selectors_find_the_pods_and_each_kind_only_its_own() -> None:
    objects = _by_name(LEAST)
    labels = {
        name: objects[f"Deployment/shop-countersign-{name}"]["spec"]["template"][
            "metadata"
        ]["labels"].items()
        for name in ("web", "worker")
    }
    chosen = objects["Service/shop-countersign"]["spec"]["selector"].items()
    assert chosen <= labels["web"]
    assert not chosen <= labels["worker"]
    for name in ("web", "worker"):
        for kind in ("Deployment", "PodDisruptionBudget"):
            selector = objects[f"{kind}/shop-countersign-{name}"]["spec"]["selector"]
            assert selector["matchLabels"].items() <= labels[name]


def test_workers_are_scaled_by_a_metric_that_there_is() -> None:
    scaled = _by_name(ALL)["ScaledObject/shop-countersign-worker"]
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    (metric,) = re.findall(r"countersign_\w+", query)
    # Those by graph leave out the graphs that are not shown by name.
    assert metric == "countersign_oldest_due_seconds"
    page = (ROOT / "docs" / "watching.md").read_text()
    assert f"| `{metric}` |" in page
    assert f"autoscaling go by `max({metric})`" in page
    sizes = (ROOT / "docs" / "deployment.md").read_text()
    assert f"(`max({metric})`" in sizes
