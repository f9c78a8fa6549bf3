"""`muster doctor --scheduler-config`: what a configuration of kube-scheduler changes of what plans predict."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from admission.cli.doctor import scheduler_config
from admission.cli.doctor.findings import Verdict
from admission.errors import MalformedObjectError

Case = tuple[str, Verdict, tuple[str, ...]]
"""The configuration, the worst verdict, and what stands in its findings."""

OK, WARNING, FAILED = Verdict.OK, Verdict.WARNING, Verdict.FAILED

CASES: Mapping[str, Case] = {
    "the defaults": ("{}", OK, ("profile default-scheduler: it filters as plans assume",)),
    "what only ranks nodes or waits": (
        """
        profiles:
        - plugins:
            score: {disabled: [{name: "*"}], enabled: [{name: Favourite}]}
            postFilter: {disabled: [{name: DefaultPreemption}]}
          pluginConfig:
          - {name: InterPodAffinity, args: {hardPodAffinityWeight: 5}}
          - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
          - {name: VolumeBinding, args: {bindTimeoutSeconds: 60}}
          - {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [
              {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}
          - {name: NodeAffinity, args: {addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}}
          - {name: DynamicResources, args: {filterTimeout: 0s, bindingTimeout: 1m}}
        """,
        OK,
        ("profile default-scheduler: it filters",),
    ),
    "another profile that filters alike": (
        "profiles: [{schedulerName: default-scheduler}, {schedulerName: packing}]",
        WARNING,
        ("profile packing: it filters as plans assume", "name it in the setting controller.schedulers"),
    ),
    "another profile, which the settings name": ("profiles: [{}, {schedulerName: known}]", OK, ("profile known: it",)),
    "no default profile": (
        "profiles: [{schedulerName: known}]",
        WARNING,
        ("no profile is called default-scheduler", "(known)"),
    ),
    "a filter that is off": (
        "profiles: [{plugins: {filter: {disabled: [{name: NodePorts}]}}}]",
        WARNING,
        ("NodePorts is off: plans hold", "(host ports)"),
    ),
    "all filters off but one": (
        "profiles: [{plugins: {filter: {disabled: [{name: '*'}], enabled: [{name: NodeName}]}}}]",
        FAILED,
        ("TaintToleration is off", "DynamicResources is off (filter): nobody allocates"),
    ),
    "defaults off in general and on again": (
        """
        profiles: [{plugins: {multiPoint: {disabled: [{name: NodePorts}, {name: VolumeZone}],
          enabled: [{name: VolumeZone}]}, preFilter: {enabled: [{name: NodePorts}]},
          filter: {enabled: [{name: NodePorts}]}}}]
        """,
        OK,
        (),
    ),
    "gates that nobody heeds": (
        "profiles: [{plugins: {multiPoint: {disabled: [{name: SchedulingGates}]}}}]",
        FAILED,
        ("SchedulingGates is off (preEnqueue)",),
    ),
    "another program's plugin": (
        "profiles: [{plugins: {multiPoint: {enabled: [{name: Coscheduling}]}, permit: {enabled: [{name: Slow}]}}}]",
        WARNING,
        ("plugin Coscheduling (multiPoint) is not known here", "plugin Slow (permit)", "startTimeout"),
    ),
    "another order of pods": (
        "profiles: [{plugins: {queueSort: {disabled: [{name: '*'}], enabled: [{name: Coscheduling}]}}}]",
        WARNING,
        ("PrioritySort is not the order of pods",),
    ),
    "arguments that filter": (
        """
        profiles:
        - pluginConfig:
          - {name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}}
          - {name: PodTopologySpread, args: {defaultConstraints: [{whenUnsatisfiable: DoNotSchedule}]}}
          - {name: NodeResourcesFit, args: {ignoredResources: [acme.io/x], ignoredResourceGroups: [other.io]}}
          - {name: DynamicResources, args: {filterTimeout: 500ms}}
          - {name: Theirs, args: {any: thing}}
        """,
        WARNING,
        (
            "NodeAffinityArgs.addedAffinity: every pod has to be on nodes that plans do not know of",
            "PodTopologySpreadArgs.defaultConstraints with DoNotSchedule: plans do not heed them",
            "NodeResourcesFitArgs.ignoredResources, ignoredResourceGroups: acme.io/x, other.io/* are not counted",
            "DynamicResourcesArgs.filterTimeout: plans hold unless the search for devices on a node takes",
        ),
    ),
    "extenders": (
        """
        extenders:
        - {urlPrefix: "http://a", filterVerb: filter, bindVerb: bind, managedResources: [
            {name: acme.io/x, ignoredByScheduler: true}]}
        - {urlPrefix: "http://b", prioritizeVerb: rank, weight: 1}
        """,
        WARNING,
        (
            "extender http://a is asked for pods that request acme.io/x, and may keep it off",
            "extender http://a binds pods that request acme.io/x: plans hold if",
            "extender http://a: acme.io/x (ignoredByScheduler) are not counted",
            "extender http://b only ranks nodes",
        ),
    ),
}


@pytest.mark.parametrize(("config", "worst", "told"), CASES.values(), ids=CASES)
def test_each_difference_is_told_with_what_becomes_of_plans(config: str, worst: Verdict, told: tuple[str, ...]) -> None:
    found = scheduler_config.judge(yaml.safe_load(config), ("default-scheduler", "known"))

    severity = [OK, WARNING, FAILED]
    assert max((severity.index(one.verdict) for one in found), default=0) == severity.index(worst)
    lines = "\n".join(f"{one.message}; {one.fix}" for one in found)
    assert [text for text in told if text not in lines] == []
    assert all(one.fix for one in found if one.verdict is not OK)


def test_a_configuration_that_cannot_be_read_names_the_field() -> None:
    bad: dict[str, Any] = {
        "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "x"}}]}]
    }

    with pytest.raises(MalformedObjectError, match=r"profiles\[0\].pluginConfig\[0\].args.filterTimeout: 'x' is not a"):
        scheduler_config.judge(bad, ())
