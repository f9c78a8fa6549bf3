"""Jobs and other workloads that differ from a good one in a policy or selector, and the field at fault.

The unit tests judge them by our rules; tests/e2e/test_validation.py sends the same ones to a real API server.
"""

from typing import Any

from tests.unit.api.cases import Case, Json, with_
from tests.unit.api.natives import POD, claim, cron_job, job, made
from tests.unit.api.pod_settings import APP_ARMOR, LOCAL

EXITS = {"operator": "In", "values": [1]}
FAILURE = "spec.podFailurePolicy.rules[0]"
SUCCESS = "spec.successPolicy.rules"
OF_POD = "spec.template.spec"


def failing(**rule: Any) -> Json:
    return job(podFailurePolicy={"rules": [with_({"action": "FailJob", "onExitCodes": EXITS}, rule)]})


def exiting(**codes: Any) -> Json:
    return failing(onExitCodes=with_(EXITS, codes))


def succeeding(*rules: Json, completions: int = 4) -> Json:
    return job(completionMode="Indexed", completions=completions, successPolicy={"rules": list(rules)})


def deployment(kind: str = "Deployment", *, pod: Json | None = None, **spec: Any) -> Json:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {**with_(POD["spec"], {"restartPolicy": None}), **(pod or {})},
    }
    whole = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return made("apps/v1", kind, spec=with_(whole, spec))


def rolling(kind: str = "Deployment", *, by: str | None = None, **update: Any) -> Json:
    """Return a workload with a rolling update."""
    strategy = with_({"rollingUpdate": update}, {"type": by})
    return deployment(kind, **{"strategy" if kind == "Deployment" else "updateStrategy": strategy})


def priority(value: int, **fields: Any) -> Json:
    return made("scheduling.k8s.io/v1", "PriorityClass", value=value, **fields)


REFUSED = {
    "a Job with less than no time": Case(job(activeDeadlineSeconds=-1), "spec.activeDeadlineSeconds"),
    "a Job of a manager without a domain": Case(job(managedBy="kueue"), "spec.managedBy"),
    "a selector that is not the Job's own": Case(job(selector={"matchLabels": {"app": "a"}}), "spec.selector"),
    "a failure without an action": Case(failing(action=None), f"{FAILURE}.action"),
    "a failure with an action that nobody knows": Case(failing(action="Retry"), f"{FAILURE}.action"),
    "a failure of an index without limits of each": Case(failing(action="FailIndex"), f"{FAILURE}.action"),
    "a failure of no kind": Case(failing(onExitCodes=None), FAILURE),
    "a failure of two kinds": Case(
        failing(onPodConditions=[{"type": "DisruptionTarget", "status": "True"}]), FAILURE
    ),
    "an exit without an operator": Case(exiting(operator=None), f"{FAILURE}.onExitCodes.operator"),
    "an exit by an operator that nobody knows": Case(exiting(operator="Is"), f"{FAILURE}.onExitCodes.operator"),
    "an exit of a container that there is not": Case(
        exiting(containerName="other"), f"{FAILURE}.onExitCodes.containerName"
    ),
    "an exit with no code": Case(exiting(values=[]), f"{FAILURE}.onExitCodes.values"),
    "an exit that is a success": Case(exiting(values=[0, 1]), f"{FAILURE}.onExitCodes.values[0]"),
    "exits in disorder": Case(exiting(values=[2, 1]), f"{FAILURE}.onExitCodes.values"),
    "an exit twice": Case(exiting(values=[1, 1]), f"{FAILURE}.onExitCodes.values[1]"),
    "a condition that is no type": Case(
        failing(onExitCodes=None, onPodConditions=[{"type": "a b", "status": "True"}]),
        f"{FAILURE}.onPodConditions[0].type",
    ),
    "a condition that is maybe": Case(
        failing(onExitCodes=None, onPodConditions=[{"type": "a", "status": "Maybe"}]),
        f"{FAILURE}.onPodConditions[0].status",
    ),
    "a replacement that nobody knows": Case(job(podReplacementPolicy="Never"), "spec.podReplacementPolicy"),
    "a replacement before a pod has failed": Case(
        {**failing(), "spec": {**failing()["spec"], "podReplacementPolicy": "TerminatingOrFailed"}},
        "spec.podReplacementPolicy",
    ),
    "a success of no rule": Case(succeeding(), SUCCESS),
    "a success of nothing": Case(succeeding({}), f"{SUCCESS}[0]"),
    "a success of more than there are": Case(succeeding({"succeededCount": 5}), f"{SUCCESS}[0].succeededCount"),
    "a success of more than are listed": Case(
        succeeding({"succeededCount": 3, "succeededIndexes": "0-1"}), f"{SUCCESS}[0].succeededCount"
    ),
    "a success of an index beyond the last": Case(
        succeeding({"succeededIndexes": "0,4"}), f"{SUCCESS}[0].succeededIndexes"
    ),
    "a success of indexes in disorder": Case(
        succeeding({"succeededIndexes": "2-3,1"}), f"{SUCCESS}[0].succeededIndexes"
    ),
    "a success of words": Case(succeeding({"succeededIndexes": "a"}), f"{SUCCESS}[0].succeededIndexes"),
    "many indexes without a limit of failures": Case(
        job(completionMode="Indexed", completions=100_001, backoffLimitPerIndex=1), "spec.maxFailedIndexes"
    ),
    "many indexes at once": Case(
        job(
            completionMode="Indexed",
            completions=100_001,
            parallelism=10_001,
            backoffLimitPerIndex=1,
            maxFailedIndexes=1,
        ),
        "spec.parallelism",
    ),
    "a scheduled Job with a selector": Case(
        cron_job(selector={"matchLabels": {"a": "b"}}), "spec.jobTemplate.spec.selector"
    ),
    "a scheduled Job with a long name": Case(
        {**cron_job(), "metadata": {"name": "x" * 53}}, "metadata.name"
    ),
    "a scheduled Job that is late in the past": Case(
        {**cron_job(), "spec": {**cron_job()["spec"], "startingDeadlineSeconds": -1}}, "spec.startingDeadlineSeconds"
    ),
    "a scheduled Job that is done twice": Case(
        {**cron_job(), "spec": {**cron_job()["spec"], "concurrencyPolicy": "Twice"}}, "spec.concurrencyPolicy"
    ),
    "a Deployment without a selector": Case(deployment(selector=None), "spec.selector"),
    "a Deployment of everything": Case(deployment(selector={}), "spec.selector"),
    "a Deployment of other pods": Case(
        deployment(selector={"matchLabels": {"app": "b"}}), "spec.template.metadata.labels"
    ),
    "a StatefulSet of other pods": Case(
        deployment("StatefulSet", selector={"matchLabels": {"app": "b"}}), "spec.template.metadata.labels"
    ),
    "a success of some of no index": Case(
        succeeding({"succeededIndexes": "", "succeededCount": 1}), f"{SUCCESS}[0].succeededCount"
    ),
    "a priority of Kubernetes' own": Case(priority(10**9 + 1), "value"),
    "a priority that preempts at times": Case(priority(1, preemptionPolicy="Sometimes"), "preemptionPolicy"),
    "a runtime of nothing": Case(made("node.k8s.io/v1", "RuntimeClass", handler=""), "handler"),
    "a runtime that is no name": Case(made("node.k8s.io/v1", "RuntimeClass", handler="A"), "handler"),
    "less than no replicas": Case(deployment(replicas=-1), "spec.replicas"),
    "a Job of a profile that its containers' annotation denies": Case(
        with_(
            job(),
            {
                "spec": {
                    "template": {
                        "metadata": {"annotations": {f"{APP_ARMOR}/main": "runtime/default"}},
                        "spec": {**POD["spec"], "securityContext": {"appArmorProfile": LOCAL}},
                    }
                }
            },
        ),
        f"{OF_POD}.containers[0].securityContext.appArmorProfile.type",
    ),
    "a Deployment that ends": Case(deployment(pod={"activeDeadlineSeconds": 5}), f"{OF_POD}.activeDeadlineSeconds"),
    "a DaemonSet that ends": Case(
        deployment("DaemonSet", pod={"activeDeadlineSeconds": 5}), f"{OF_POD}.activeDeadlineSeconds"
    ),
    "a Deployment by no expression": Case(
        deployment(selector={"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
        "spec.template.metadata.labels",
    ),
    "a Deployment by a strategy that nobody knows": Case(
        deployment(strategy={"type": "OnDelete"}), "spec.strategy.type"
    ),
    "a new start in steps": Case(rolling(by="Recreate"), "spec.strategy.rollingUpdate"),
    "steps of nothing": Case(rolling(maxSurge=0, maxUnavailable="0%"), "spec.strategy.rollingUpdate.maxUnavailable"),
    "a step of half a pod": Case(rolling(maxSurge="0.5"), "spec.strategy.rollingUpdate.maxSurge"),
    "a step of less than nothing": Case(rolling(maxSurge=-1), "spec.strategy.rollingUpdate.maxSurge"),
    "more than all at once": Case(rolling(maxUnavailable="101%"), "spec.strategy.rollingUpdate.maxUnavailable"),
    "far more than all at once": Case(
        rolling(maxUnavailable="9" * 5000 + "%"), "spec.strategy.rollingUpdate.maxUnavailable"
    ),
    "progress before pods are ready": Case(
        deployment(minReadySeconds=600), "spec.progressDeadlineSeconds"
    ),
    "less than no history": Case(deployment(revisionHistoryLimit=-1), "spec.revisionHistoryLimit"),
    "a DaemonSet by a strategy that nobody knows": Case(
        deployment("DaemonSet", updateStrategy={"type": "Recreate"}), "spec.updateStrategy.type"
    ),
    "a DaemonSet that surges and lacks": Case(
        rolling("DaemonSet", maxSurge=1), "spec.updateStrategy.rollingUpdate.maxSurge"
    ),
    "a DaemonSet that stands still": Case(
        rolling("DaemonSet", maxUnavailable="0%"), "spec.updateStrategy.rollingUpdate.maxUnavailable"
    ),
    "a DaemonSet that surges beyond all": Case(
        rolling("DaemonSet", maxUnavailable=0, maxSurge="101%"), "spec.updateStrategy.rollingUpdate.maxSurge"
    ),
    "a StatefulSet of a name that is no label": Case(
        {**deployment("StatefulSet"), "metadata": {"name": "a.b"}}, "metadata.name"
    ),
    "a StatefulSet in another order": Case(
        deployment("StatefulSet", podManagementPolicy="Random"), "spec.podManagementPolicy"
    ),
    "a StatefulSet by a strategy that nobody knows": Case(
        deployment("StatefulSet", updateStrategy={"type": "Delete"}), "spec.updateStrategy.type"
    ),
    "a StatefulSet that waits in steps": Case(
        rolling("StatefulSet", by="OnDelete", partition=1), "spec.updateStrategy.rollingUpdate"
    ),
    "a StatefulSet from before its first": Case(
        rolling("StatefulSet", partition=-1), "spec.updateStrategy.rollingUpdate.partition"
    ),
    "a StatefulSet that keeps at times": Case(
        deployment("StatefulSet", persistentVolumeClaimRetentionPolicy={"whenDeleted": "Sometimes"}),
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
    ),
    "a StatefulSet that counts from before nothing": Case(
        deployment("StatefulSet", ordinals={"start": -1}), "spec.ordinals.start"
    ),
    "a StatefulSet of a service that is no label": Case(
        deployment("StatefulSet", serviceName="a.b"), "spec.serviceName"
    ),
    "a StatefulSet of a claim of nothing": Case(
        deployment("StatefulSet", volumeClaimTemplates=[{**claim(accessModes=[]), "metadata": {"name": "a"}}]),
        "spec.volumeClaimTemplates[0].spec.accessModes",
    ),
}  # fmt: skip

GOOD = {
    "a Job with a policy for failures": failing(action="Count", onExitCodes={"operator": "NotIn", "values": [0, 1]}),
    "a Job with a policy for conditions": failing(
        action="Ignore", onExitCodes=None, onPodConditions=[{"type": "DisruptionTarget", "status": "True"}]
    ),
    "a Job with a policy without rules": job(podFailurePolicy={"rules": []}),
    "a Job that succeeds early": succeeding({"succeededCount": 2, "succeededIndexes": "0-2,3"}, {"succeededCount": 4}),
    "a Job whose success is of no index": succeeding({"succeededIndexes": ""}),
    "a Job with an empty selector": job(selector={}),
    "a Job of another controller": job(managedBy="kueue.x-k8s.io/multikueue"),
    "a priority": priority(10**9, preemptionPolicy="Never"),
    "a runtime": made("node.k8s.io/v1", "RuntimeClass", handler="kata"),
    "a Deployment": deployment(replicas=0),
    "a DaemonSet": deployment("DaemonSet"),
    "a Deployment in steps": rolling(maxSurge="200%", maxUnavailable=0),
    "a Deployment that starts anew": deployment(strategy={"type": "Recreate"}),
    "a DaemonSet that surges": rolling("DaemonSet", maxUnavailable=0, maxSurge=5),
    "a DaemonSet that waits": deployment("DaemonSet", updateStrategy={"type": "OnDelete", "rollingUpdate": {}}),
    "a StatefulSet of names that its controller writes over": deployment(
        "StatefulSet",
        pod={"hostname": "A", "subdomain": "B_", "volumes": [{"name": "data", "nfs": {}}]},
        serviceName="",
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim()["spec"]}],
        updateStrategy={"rollingUpdate": {"partition": 5, "maxUnavailable": 1}},
    ),
    "a StatefulSet by an expression": deployment(
        "StatefulSet", selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    ),
}
