"""Objects of Muster's kinds that the API server takes as they are, and others that it refuses with words for them."""

from tests.unit.api.crds import a_budget, a_gang, a_meter, a_policy, a_queue, a_quota, a_shape

TAKEN = {
    "amounts as numbers": a_quota(nominal=8, borrowingLimit=0),
    "amounts as text": a_quota(nominal="640Gi", lendingLimit="0"),
    "a budget of a period": a_budget(period="Month", hours="50k"),
    "a budget of a span": a_budget(start="2026-10-01T00:00:00Z", end="2026-10-01T00:00:00-01:00"),
    "a budget of half an hour": a_budget(period="Week", hours="0.5"),
    "a budget of 9 seconds": a_budget(period="Week", hours="0.0025", scope="Global"),
    "a budget in thousandths": a_budget(period="Week", hours="2500m", timeZone="Asia/Kathmandu"),
    "a budget beyond 64 bits": a_budget(period="Year", hours="9223372036854775808"),
    "a quota beyond 64 bits": a_quota(nominal="9223372036854775808"),
    "the largest quota": a_quota(nominal="1000000000000000000000000000"),
    "a budget that warns below one that holds": a_queue(
        budgets=[
            {"meter": "gpus", "hours": hours, "period": "Day", "onExhausted": end}
            for hours, end in ((20, "Warn"), (24, "Hold"))
        ]
    ),
    "a budget of this cluster within one of all": a_queue(
        budgets=[{"meter": "gpus", "hours": 9, "period": "Day", "scope": scope} for scope in ("Cluster", "Global")]
    ),
    "two windows": a_queue(
        budgets=[
            {"meter": "gpus", "hours": 9, "start": f"{year}-01-01T00:00:00Z", "end": f"{year + 1}-01-01T00:00:00Z"}
            for year in (2026, 2027)
        ]
    ),
    "fair sharing of half a weight": a_queue(fairSharing={"weight": "0.5", "halfLife": "168h"}),
    "fair sharing that says nothing": a_queue(fairSharing={}),
    "members by namespace": a_queue(fairSharing={"within": {"by": "Namespace"}}),
    "members by a label": a_queue(
        fairSharing={"within": {"by": "Label", "label": "team", "weights": [{"name": "red", "weight": "0.5"}]}}
    ),
    "idle gangs by default": a_queue(idle={}),
    "idle gangs that are evicted": a_queue(idle={"belowPercent": 100, "after": "168h", "action": "Evict"}),
    "kinds of devices": a_queue(
        preferences={"kinds": [{"name": "a", "deviceClasses": ["gpu.example.com"]}], "whenCanBorrow": "TryNext"}
    ),
    "preemption to borrow": a_queue(
        preemption={"reclaim": "Any", "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -5}}
    ),
    "preemption by shares": a_queue(preemption={"reclaim": "Any", "byShares": "LessThanInitialShare"}),
    "preemption to borrow that says nothing": a_queue(preemption={"borrowWithinCohort": {}}),
    "priorities of its own": a_queue(priorityClasses=[{"name": "urgent", "value": 2147483647}]),
    "a day's and a month's budget": a_queue(
        budgets=[{"meter": "gpus", "hours": 24, "period": "Day"}, {"meter": "gpus", "hours": 99, "period": "Month"}]
    ),
    "fields of a claim that are newer than Muster": a_policy(
        templates=[{"name": "t", "spec": {"devices": {"requests": [{"name": "r", "newer": {"a": 1}}], "newer": []}}}]
    ),
    "a gang of all its pods": a_gang(size=2, minCount=2),
    "a shape of a NodePool alone": a_shape(matchLabels=None, nodePool="gpu"),
    "a gang in one rack": a_gang(topology={"required": "topology.kubernetes.io/rack"}),
    "a gang in one zone, and in one rack if that can be": a_gang(topology={"required": "zone", "preferred": "rack"}),
    "a gang whose subgroups have a rack each": a_gang(topology={"subgroups": {"required": "rack"}}),
    "a queue that others call otherwise": a_queue(namespaceSelector={}, aliases=["root.team-a"]),
    "a gang that is to be taken back": a_gang(request={"id": "1", "action": "Evict", "by": "ann", "reason": "why"}),
    "a gang that is to be ranked higher": a_gang(
        request={"id": "1", "action": "Prioritize", "by": "ann", "priorityClass": "urgent"}
    ),
    "a gang of the longest names": a_gang(queue="q" * 63),
    "a shape whose devices are newer than Muster": a_shape(
        resourceSlices=[{"driver": "gpu.example.com", "devices": [{"name": "gpu-0", "newer": {"a": 1}}]}]
    ),
    "a shape with counters, at a price": a_shape(
        pricePerHour="98.32",
        allocatable={"cpu": "95500m", "memory": "1Ti", "nvidia.com/gpu": 8},
        resourceSlices=[
            {"driver": "gpu.example.com", "devices": [{"name": "gpu-0"}]},
            {"driver": "gpu.example.com", "sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}]},
        ],
    ),
}

LABELS = [{"key": "team", "operator": "In"}]
REFUSED = {
    "a shape of too long a name": (a_shape() | {"metadata": {"name": "s" * 64}}, "use at most 63 characters"),
    "a shape at a price below 0": (a_shape(pricePerHour=-1), "spec.pricePerHour"),
    "a shape at a price with a fraction as a number": (a_shape(pricePerHour=98.32), "spec.pricePerHour"),
    "a shape that every node is of": (a_shape(matchLabels={}), "spec.matchLabels"),
    "a shape of neither labels nor a NodePool": (
        a_shape(matchLabels=None),
        "matchLabels is required: the labels that every node of the shape has, and no other node; or name a NodePool",
    ),
    "a NodePool that has no name": (a_shape(nodePool=""), "spec.nodePool"),
    "a node with less than nothing": (
        a_shape(allocatable={"cpu": "-1"}),
        "must not be negative; write what a node has for pods, 0 for none",
    ),
    "a slice of nothing": (
        a_shape(resourceSlices=[{"driver": "gpu.example.com"}]),
        "a slice has devices or sharedCounters, not both",
    ),
    "a queue that is its own parent": (a_queue(parent="q"), "a queue cannot be its own parent"),
    "a queue with too long a name": (a_queue() | {"metadata": {"name": "q" * 64}}, "use at most 63 characters"),
    "a default queue of no namespaces": (a_queue(default=True), "default: true needs a namespaceSelector"),
    "a value that no label can have": (
        a_queue(namespaceSelector={"matchLabels": {"team": "b c"}}),
        "spec.namespaceSelector.matchLabels.team: Invalid value",
    ),
    "a selector without values": (
        a_queue(namespaceSelector={"matchExpressions": LABELS}),
        "In and NotIn need at least one entry in values",
    ),
    "a gang that may be idle for more than a week": (
        a_queue(idle={"after": "168h1s"}),
        "after must not be longer than 168h: shorten it",
    ),
    "a gang that is never idle enough": (a_queue(idle={"belowPercent": 0}), "spec.idle.belowPercent"),
    "a negative quota": (a_quota(nominal=-1), "must not be negative; write 0 for none"),
    "a negative limit to borrow": (a_quota(borrowingLimit="-1"), "must not be negative; write 0 for none"),
    "a negative limit to lend": (a_quota(lendingLimit="-1Gi"), "must not be negative; write 0 for none"),
    "two quotas of one meter": (a_queue(quotas=[{"meter": "a", "nominal": 1}] * 2), "Duplicate value"),
    "a quota that is not whole": (a_quota(nominal="0.5"), "spec.quotas[0].nominal"),
    "a quota out of this world": (a_quota(nominal="1e400"), "spec.quotas[0].nominal"),
    "one more than the most": (a_quota(nominal=str(10**27 + 1)), "is more than can be counted: an amount is at most"),
    "a quota far finer than its unit": (a_quota(nominal="0.0000000001"), "spec.quotas[0].nominal"),
    "a limit with an exponent as a bomb": (a_quota(borrowingLimit="1e999999999"), "spec.quotas[0].borrowingLimit"),
    "a budget without a time": (a_budget(), "either a period or both start and end"),
    "a budget with both": (a_budget(period="Day", end="2026-10-01T00:00:00Z"), "either a period or both start and end"),
    "a budget without an end": (a_budget(start="2026-10-01T00:00:00Z"), "either a period or both start and end"),
    "a budget that ends first": (
        a_budget(start="2026-10-01T00:00:00Z", end="2026-10-01T00:00:00+01:00"),
        "end must be later than start",
    ),
    "a budget of nothing": (a_budget(period="Day", hours=0), "must be more than 0; to give nothing, set the quota"),
    "a budget of nothing, as text": (
        a_budget(period="Day", hours="0Gi"),
        "must be more than 0; to give nothing, set the quota",
    ),
    "a negative budget": (a_budget(period="Day", hours="-5"), "must be more than 0; to give nothing, set the quota"),
    "a budget of less than a second": (a_budget(period="Day", hours="0.0001"), "must be a whole number of seconds"),
    "a budget of a part of a second": (a_budget(period="Day", hours="1.0001"), "must be a whole number of seconds"),
    "a budget of thousandths": (a_budget(period="Day", hours="1m"), "must be a whole number of seconds"),
    "a budget far finer than a second": (a_budget(period="Day", hours="0.0000000001"), "spec.budgets[0].hours"),
    "two budgets of one period": (
        a_queue(budgets=[{"meter": "gpus", "hours": hours, "period": "Day"} for hours in (1, 2)]),
        "two budgets of a meter have the same span, scope and onExhausted",
    ),
    "two budgets of one window": (
        a_queue(
            budgets=[
                {"meter": "gpus", "hours": hours, "start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"}
                for hours in (1, 2)
            ]
        ),
        "two budgets of a meter have the same span, scope and onExhausted",
    ),
    "a kind of no class": (
        a_queue(preferences={"kinds": [{"name": "a", "deviceClasses": []}]}),
        "spec.preferences.kinds[0].deviceClasses",
    ),
    "members by a label that is not named": (
        a_queue(fairSharing={"within": {"by": "Label"}}),
        "label goes together with by: Label",
    ),
    "preemption to borrow without reclaiming": (
        a_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "borrowWithinCohort needs a reclaim other than Never",
    ),
    "preemption by shares without reclaiming": (
        a_queue(preemption={"byShares": "LessThanInitialShare"}),
        "byShares needs a reclaim other than Never",
    ),
    "a priority class without a value": (
        a_queue(priorityClasses=[{"name": "urgent"}]),
        "spec.priorityClasses[0].value",
    ),
    "a negative weight": (a_queue(fairSharing={"weight": "-1"}), "spec.fairSharing.weight"),
    "a half-life of nothing": (a_queue(fairSharing={"halfLife": "0s"}), "must be longer than 0s, for example 90s"),
    "a negative half-life": (a_queue(fairSharing={"halfLife": "-1h"}), "spec.fairSharing.halfLife"),
    "no time to start": (a_queue(startTimeout="0s"), "must be longer than 0s, for example 90s"),
    "requests for nodes of no class": (
        a_queue(provisioning={"mode": "ProvisioningRequest"}),
        "class and mode ProvisioningRequest go together",
    ),
    "aliases for no namespace": (
        a_queue(aliases=["user-queue"]),
        "aliases need a namespaceSelector that says for which namespaces",
    ),
    "a longer first wait than the longest": (a_queue(requeue={"base": "2h"}), "base must not be longer than max"),
    "a longer default than the maximum": (
        a_queue(maxRuntime="1h", defaultRuntime="61m"),
        "defaultRuntime must not be longer than maxRuntime",
    ),
    "a meter of nothing": (a_meter() | {"spec": {}}, "a meter without sources counts nothing"),
    "a meter of a resource that is no extended one": (
        a_meter() | {"spec": {"extendedResources": ["nvidia.com/gpu", "memory"]}},
        "must be the name of an extended resource",
    ),
    "a meter of the resource that a class offers by its own name": (
        a_meter() | {"spec": {"extendedResources": ["deviceclass.resource.kubernetes.io/gpu"]}},
        "must be the name of an extended resource",
    ),
    "a meter of what nobody requests of nodes": (
        a_meter() | {"spec": {"resources": [{"name": "requests.cpu"}]}},
        "must be one of cpu, memory, ephemeral-storage, pods",
    ),
    "a meter of huge pages of no size": (
        a_meter() | {"spec": {"resources": [{"name": "hugepages-2mi"}]}},
        "must be one of cpu, memory, ephemeral-storage, pods",
    ),
    "a meter of thousandths of a byte": (
        a_meter() | {"spec": {"resources": [{"name": "memory", "per": "500m"}]}},
        "only cpu has thousandths: write per in whole units",
    ),
    "a meter of too large an amount": (
        a_meter() | {"spec": {"resources": [{"name": "memory", "per": "2Pi"}]}},
        "is more than can be counted with: at most 1P",
    ),
    "a meter of one resource twice": (
        a_meter() | {"spec": {"resources": [{"name": "cpu"}, {"name": "cpu"}]}},
        "Duplicate value",
    ),
    "a meter that lists one resource in two ways": (
        a_meter() | {"spec": {"resources": [{"name": "x.io/gpu"}], "extendedResources": ["x.io/gpu"]}},
        "a resource may be in one of resources and extendedResources",
    ),
    "a meter with too long a name": (
        a_meter(count={}) | {"metadata": {"name": "m" * 64}},
        "use at most 63 characters",
    ),
    "a source that counts in no way": (a_meter(), "give one of claims, count, capacity, counter, expression"),
    "a source that counts in two ways": (a_meter(claims={}, count={}), "a source counts in exactly one way"),
    "a default of nothing": (a_policy(defaults=[{"deviceClasses": ["gpu"]}]), "give at least one of deviceClassName"),
    "an alias of nothing": (a_policy(defaults=[{"deviceClassName": "gpu"}]), "name the aliases in deviceClasses"),
    "two templates of one name": (
        a_policy(templates=[{"name": "t", "spec": {"devices": {"requests": []}}}] * 2),
        "Duplicate value",
    ),
    "a request of two kinds": (
        a_policy(
            templates=[
                {"name": "t", "spec": {"devices": {"requests": [{"name": "r", "exactly": {}, "firstAvailable": []}]}}}
            ]
        ),
        "a request has either exactly or firstAvailable",
    ),
    "a gang whose part is larger": (a_gang(size=2, minCount=3), "minCount must not be more than size"),
    "a gang that is together nowhere": (
        a_gang(topology={}),
        "name a label in required or preferred, or say what keeps subgroups together",
    ),
    "a gang whose subgroups are together nowhere": (
        a_gang(topology={"subgroups": {}}),
        "name a label in required or preferred",
    ),
    "a request for a rank that it does not name": (
        a_gang(request={"id": "1", "action": "Prioritize", "by": "ann"}),
        "name a class of the queue in priorityClass for Prioritize, and for nothing else",
    ),
    "a request of nobody": (a_gang(request={"id": "1", "action": "Evict"}), "spec.request.by: Required value"),
    "a field that does not exist": (a_gang(sise=3), 'unknown field "spec.sise"'),
}
