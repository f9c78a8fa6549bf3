"""What a KubeSchedulerConfiguration changes of what Muster predicts, profile by profile.

Muster plans with the default plugins of `pkg/scheduler/apis/config/v1/default_plugins.go` (v1.37.1) and their default
arguments. Each difference that decides where a pod may go is a finding: whether plans still hold, and what to do. What
only ranks nodes changes nothing, since pods are pinned to the planned node.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from admission.api.kubernetes.pods import DEFAULT_SCHEDULER
from admission.api.values import durations
from admission.api.values.decoding import Json, Reader
from admission.cli.doctor import findings
from admission.cli.doctor.findings import Finding

CHECK = "kube-scheduler"
KIND = "KubeSchedulerConfiguration"
VERSIONS = ("kubescheduler.config.k8s.io/v1",)

_BOTH = ("preFilter", "filter")
FILTERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "NodeName": (("filter",), "spec.nodeName"),
    "NodeUnschedulable": (("filter",), "cordoned nodes"),
    "TaintToleration": (("filter",), "taints"),
    "NodeAffinity": (_BOTH, "node selectors and node affinity"),
    "NodePorts": (_BOTH, "host ports"),
    "NodeResourcesFit": (_BOTH, "resources of nodes"),
    "NodeDeclaredFeatures": (_BOTH, "features that nodes declare"),
    "VolumeRestrictions": (_BOTH, "disks and claims that exclude each other"),
    "NodeVolumeLimits": (_BOTH, "how many volumes a node attaches"),
    "VolumeZone": (_BOTH, "zones of volumes"),
    "PodTopologySpread": (_BOTH, "topology spread constraints"),
    "InterPodAffinity": (_BOTH, "affinity and anti-affinity between pods"),
}
"""The default filters that a plan heeds, with their extension points and what they judge."""

ESSENTIAL: Mapping[str, tuple[tuple[str, ...], str]] = {
    "SchedulingGates": (
        ("preEnqueue",),
        "kube-scheduler tries pods whose gate is shut, and is refused by the API server",
    ),
    "DynamicResources": (
        ("preEnqueue", *_BOTH, "reserve", "preBind"),
        "nobody allocates or reserves claims, and no pod with claims starts",
    ),
    "VolumeBinding": ((*_BOTH, "reserve", "preBind"), "claims that wait for their first pod are never bound"),
}
"""The default plugins without which gangs do not start, with their extension points and what happens without."""

OTHER_DEFAULTS = frozenset(
    {
        "PrioritySort",
        "DefaultBinder",
        "DefaultPreemption",
        "GangScheduling",
        "ImageLocality",
        "DeferredPodScheduling",
        "NodeResourcesBalancedAllocation",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
    }
)
"""The other plugins of kube-scheduler itself, which decide nothing that a plan rests on."""

DECIDING = ("preEnqueue", *_BOTH, "reserve", "permit", "preBind", "bind")
"""The extension points at which a plugin can keep a pod from its planned node."""

FILTER_TIMEOUT = 10.0
"""Seconds; the default of DynamicResourcesArgs.filterTimeout."""

START_TIMEOUT = (
    "give the queues of such pods a startTimeout: a gang that is refused is taken back, told why, and planned elsewhere"
)
DO_NOT_ASK = "switch it on again, or expect gangs to wait for a rule that binds nobody else"


@dataclass(frozen=True, slots=True)
class _Profile:
    """One profile. sets: its plugin sets by extension point."""

    name: str
    sets: Mapping[str, Reader]
    args: Mapping[str, Reader]

    def says(self, message: str, fix: str, *, severe: bool = False) -> Finding:
        make = findings.failed if severe else findings.warning
        return make(CHECK, f"profile {self.name}: {message}", fix)

    def is_on(self, plugin: str, point: str) -> bool:
        """Return whether a default plugin runs at a point (expandMultiPointPlugins of the framework's runtime)."""
        if plugin in _names(self.sets[point], "enabled"):
            return True
        if not _names(self.sets[point], "disabled").isdisjoint({plugin, "*"}):
            return False
        general = self.sets["multiPoint"]
        return plugin in _names(general, "enabled") or _names(general, "disabled").isdisjoint({plugin, "*"})


def judge(config: Json, schedulers: Collection[str]) -> list[Finding]:
    """Return what of a configuration matters to plans. schedulers: the setting `controller.schedulers`.

    Raises MalformedObjectError.
    """
    reader = Reader(config)
    profiles = [_profile(one) for one in reader.children("profiles")] or [_profile(Reader({}))]
    found = [finding for one in profiles for finding in _of_profile(one, schedulers)]
    if all(one.name != DEFAULT_SCHEDULER for one in profiles):
        named = ", ".join(one.name for one in profiles)
        found.append(
            findings.warning(
                CHECK,
                f"no profile is called {DEFAULT_SCHEDULER}: this kube-scheduler does not look at pods that name none",
                f"have pods name one in spec.schedulerName ({named}), or see that another scheduler takes the others",
            )
        )
    found += [finding for one in reader.children("extenders") for finding in _extender(one)]
    reader.finish(KIND, reader.child("metadata").text("name"))
    return found


def _profile(reader: Reader) -> _Profile:
    plugins = reader.child("plugins")
    return _Profile(
        name=reader.text("schedulerName") or DEFAULT_SCHEDULER,
        sets={point: plugins.child(point) for point in (*DECIDING, "queueSort", "multiPoint")},
        args={one.text("name"): one.child("args") for one in reader.children("pluginConfig")},
    )


def _names(plugin_set: Reader, which: str) -> set[str]:
    return {one.text("name") for one in plugin_set.children(which)}


def _of_profile(profile: _Profile, schedulers: Collection[str]) -> Iterator[Finding]:
    differences = [*_switched_off(profile), *_foreign(profile), *_arguments(profile)]
    yield from differences
    if profile.name not in schedulers:
        notice = "pods that name it are told as not simulated (status.notSimulated)"
        if differences:
            yield profile.says(notice, "leave it so, or let gangs name another profile")
        else:
            yield profile.says(
                f"it filters as plans assume, and {notice}", "name it in the setting controller.schedulers"
            )
    elif not differences:
        yield findings.passed(CHECK, f"profile {profile.name}: it filters as plans assume")


def _switched_off(profile: _Profile) -> Iterator[Finding]:
    for plugin, (points, judged) in FILTERS.items():
        if not all(profile.is_on(plugin, point) for point in points):
            yield profile.says(
                f"{plugin} is off: plans hold, but are made by rules ({judged}) that kube-scheduler does not ask for",
                DO_NOT_ASK,
            )
    for plugin, (points, harm) in ESSENTIAL.items():
        missing = [point for point in points if not profile.is_on(plugin, point)]
        if missing:
            where = ", ".join(missing)
            yield profile.says(f"{plugin} is off ({where}): {harm}", "switch it on again", severe=True)


def _foreign(profile: _Profile) -> Iterator[Finding]:
    """Yield what other programs' plugins may do."""
    known = {*FILTERS, *ESSENTIAL, *OTHER_DEFAULTS}
    where: dict[str, list[str]] = {}
    for point in (*DECIDING, "multiPoint"):
        for name in sorted(_names(profile.sets[point], "enabled") - known):
            where.setdefault(name, []).append(point)
    for name, points in where.items():
        at = ", ".join(points)
        message = f"plugin {name} ({at}) is not known here: it may keep pods off the nodes of a plan, or delay them"
        yield profile.says(message, START_TIMEOUT)
    if not profile.is_on("PrioritySort", "queueSort"):
        yield profile.says(
            "PrioritySort is not the order of pods: those pinned to one node may get each other's devices",
            "use placement Allocate, or switch PrioritySort on again",
        )


def _arguments(profile: _Profile) -> Iterator[Finding]:
    for plugin, args in profile.args.items():
        judged = _ARGUMENTS.get(plugin)
        if judged is not None:
            yield from (profile.says(f"{plugin}Args.{message}", fix) for message, fix in judged(args))


Difference = tuple[str, str]
"""What differs, and what to do."""


def _added_affinity(args: Reader) -> Iterator[Difference]:
    added = args.child("addedAffinity")
    if "requiredDuringSchedulingIgnoredDuringExecution" in added:
        yield (
            "addedAffinity: every pod has to be on nodes that plans do not know of; a plan may choose others",
            "write the same node affinity into the pods of gangs, or taint the other nodes",
        )


def _default_spread(args: Reader) -> Iterator[Difference]:
    constraints = [*args.children("defaultConstraints")]
    if any(one.text("whenUnsatisfiable") == "DoNotSchedule" for one in constraints):
        yield (
            "defaultConstraints with DoNotSchedule: plans do not heed them, for pods of Services that have none",
            "write topologySpreadConstraints into the pods of gangs, which replace the defaults",
        )


def _ignored_resources(args: Reader) -> Iterator[Difference]:
    names = (*args.texts("ignoredResources"), *(f"{group}/*" for group in args.texts("ignoredResourceGroups")))
    if names:
        yield _uncounted(f"ignoredResources, ignoredResourceGroups: {', '.join(names)}")


def _uncounted(what: str) -> Difference:
    return (
        f"{what} are not counted on nodes; plans hold, but gangs wait where a node says that it has none left",
        "leave these resources out of the pods of gangs, or expect them to wait",
    )


def _filter_timeout(args: Reader) -> Iterator[Difference]:
    limit = args.parsed("filterTimeout", durations.parse, None) if "filterTimeout" in args else None
    seconds = limit.total_seconds() if limit is not None else FILTER_TIMEOUT
    if 0 < seconds < FILTER_TIMEOUT:
        yield (
            f"filterTimeout: plans hold unless the search for devices on a node takes kube-scheduler {seconds:g} s",
            "set 10s, its default, or use placement Allocate",
        )


_ARGUMENTS: Mapping[str, Callable[[Reader], Iterable[Difference]]] = {
    "NodeAffinity": _added_affinity,
    "PodTopologySpread": _default_spread,
    "NodeResourcesFit": _ignored_resources,
    "DynamicResources": _filter_timeout,
}
"""The plugins with arguments that filter. Those of InterPodAffinity and NodeResourcesBalancedAllocation rank nodes;
those of VolumeBinding and DefaultPreemption say how long to wait and whom to look at."""


def _extender(reader: Reader) -> Iterator[Finding]:
    name = f"extender {reader.text('urlPrefix')}"
    managed = [*reader.children("managedResources")]
    resources = ", ".join(one.text("name") for one in managed)
    whose = f"pods that request {resources}" if managed else "every pod"
    if "filterVerb" in reader:
        message = f"{name} is asked for {whose}, and may keep it off the nodes of a plan"
        yield findings.warning(CHECK, message, START_TIMEOUT)
    if "bindVerb" in reader:
        message = f"{name} binds {whose}: plans hold if it binds to the node that it is given"
        yield findings.warning(CHECK, message, "see that it does; else give the queues of such pods a startTimeout")
    ignored = [one.text("name") for one in managed if one.flag("ignoredByScheduler")]
    if ignored:
        message, fix = _uncounted(f"{', '.join(ignored)} (ignoredByScheduler)")
        yield findings.warning(CHECK, f"{name}: {message}", fix)
    if not {"filterVerb", "bindVerb"} & {*reader.value} and not ignored:
        yield findings.passed(CHECK, f"{name} only ranks nodes or victims of preemption: plans hold")
