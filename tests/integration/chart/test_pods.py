"""What the chart gives pods, and what is on all of its objects."""

import json
from typing import Any

import pytest

from tests.integration.chart.charts import BOOKS, DASHBOARD, HOOKS, ROLES, Helm, checksum, pod, rendered

pytestmark = pytest.mark.timeout(120, func_only=True)


def test_pods_of_the_priority_may_be_made_where_that_takes_a_quota(helm: Helm) -> None:
    objects = rendered(helm)

    quota = objects["ResourceQuota", "muster-priority"]
    [scope] = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
    assert scope["values"] == [pod(objects, "webhook")["priorityClassName"]]
    for without in ("priorityClassName=", "priorityClassQuota=false"):
        assert not any(kind == "ResourceQuota" for kind, _ in rendered(helm, without))


@pytest.mark.parametrize("role", ROLES)
def test_the_user_of_pods_can_be_left_to_the_cluster(helm: Helm, role: str) -> None:
    nobody = [f"podSecurityContext.{name}=null" for name in ("runAsUser", "runAsGroup", "fsGroup")]

    left, usual = rendered(helm, DASHBOARD, *nobody), rendered(helm, DASHBOARD)

    assert pod(left, role)["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod(usual, role)["securityContext"]["runAsUser"] == 65532
    none = rendered(helm, DASHBOARD, "podSecurityContext=null", "securityContext.readOnlyRootFilesystem=false")
    assert "securityContext" not in pod(none, role)
    [container] = pod(none, role)["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": False,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("role", ROLES)
def test_pods_carry_what_a_cluster_asks_of_them(helm: Helm, role: str) -> None:
    header = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "otel", "key": "headers"}}}
    near: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    given: dict[str, Any] = {
        "extraEnv": [header],
        "podAnnotations": {"sidecar.istio.io/inject": "false", "checksum/settings": "mine"},
        "podLabels": {"cost-centre": "42", "app.kubernetes.io/component": "mine"},
        "affinity": near,
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    }
    values = [f"{role}.{name}={json.dumps(value)}" for name, value in given.items()]

    objects = rendered(helm, DASHBOARD, BOOKS, *values)

    spec, usual = pod(objects, role), rendered(helm, DASHBOARD, BOOKS)
    metadata = objects["Deployment", f"muster-{role}"]["spec"]["template"]["metadata"]
    assert header in spec["containers"][0]["env"]
    assert {name: spec[name] for name in ("affinity", "nodeSelector", "tolerations")} == {
        name: given[name] for name in ("affinity", "nodeSelector", "tolerations")
    }
    assert metadata["annotations"] == {"sidecar.istio.io/inject": "false", "checksum/settings": checksum(usual, role)}
    selected = objects["Service", f"muster-{role}"]["spec"]["selector"]
    assert metadata["labels"] == {**selected, "cost-centre": "42"}
    [spread] = spec["topologySpreadConstraints"]
    assert spread == {**given["topologySpreadConstraints"][0], "labelSelector": {"matchLabels": selected}}
    assert given["extraVolumes"][0] in spec["volumes"]
    assert given["extraVolumeMounts"][0] in spec["containers"][0]["volumeMounts"]
    others = [other for other in ROLES if other != role]
    assert all(objects["Deployment", f"muster-{one}"] == usual["Deployment", f"muster-{one}"] for one in others)


@pytest.mark.parametrize(("kind", "values"), [("Job", "uninstall"), ("Pod", "smokeTest")])
def test_pods_of_hooks_carry_what_a_cluster_asks_of_them(helm: Helm, kind: str, values: str) -> None:
    given: dict[str, Any] = {
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "podLabels": {"cost-centre": "42"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    }

    objects = rendered(helm, *(f"{values}.{name}={json.dumps(value)}" for name, value in given.items()))

    [found] = [one for (its_kind, _), one in objects.items() if its_kind == kind]
    if kind == "Job":
        found = found["spec"]["template"]
    assert found["metadata"]["annotations"].items() >= given["podAnnotations"].items()
    assert found["metadata"]["labels"].items() >= given["podLabels"].items()
    assert {name: found["spec"][name] for name in ("affinity", "nodeSelector", "tolerations")} == {
        name: given[name] for name in ("affinity", "nodeSelector", "tolerations")
    }
    assert found["spec"]["volumes"] == given["extraVolumes"]
    assert found["spec"]["containers"][0]["volumeMounts"] == given["extraVolumeMounts"]
    assert not any(its_kind == kind for its_kind, _ in rendered(helm, f"{values}.enabled=false"))


def test_common_labels_and_annotations_are_on_every_object_and_pod(helm: Helm) -> None:
    more = ("namespace.create=true", "serviceMonitor.enabled=true", "alerts.enabled=true", "grafana.enabled=true")
    common = ('commonLabels={"cost-centre": "42"}', 'commonAnnotations={"owner": "platform"}')

    objects = rendered(helm, DASHBOARD, "webhook.certManager.enabled=true", *more, *common)

    templates = [one["spec"]["template"] for one in objects.values() if "template" in one.get("spec", {})]
    for one in (*objects.values(), *templates):
        metadata = one["metadata"]
        assert (metadata["labels"]["cost-centre"], metadata["annotations"]["owner"]) == ("42", "platform"), metadata
        assert metadata["labels"]["app.kubernetes.io/name"] == "muster"


def test_accounts_carry_the_annotations_that_a_cloud_knows_them_by(helm: Helm) -> None:
    own = {"muster": "serviceAccount", "muster-webhook": "webhook.serviceAccount"}
    own["muster-dashboard"] = "dashboard.serviceAccount"
    values = [f'{value}.annotations={{"iam": "{name}"}}' for name, value in own.items()]

    objects = rendered(helm, DASHBOARD, *values)

    found = {
        name: account["metadata"]["annotations"]
        for (kind, name), account in objects.items()
        if kind == "ServiceAccount" and name not in HOOKS
    }
    assert found == {name: {"iam": name} for name in own}


def test_selectors_tell_the_roles_apart(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, "dashboard.replicas=2", "dashboard.sessions.secret=sessions")

    for role in ROLES:
        labels = objects["Deployment", f"muster-{role}"]["spec"]["template"]["metadata"]["labels"]
        assert objects["Service", f"muster-{role}"]["spec"]["selector"] == labels
        assert objects["PodDisruptionBudget", f"muster-{role}"]["spec"]["selector"]["matchLabels"] == labels
        assert labels["app.kubernetes.io/component"] == role
