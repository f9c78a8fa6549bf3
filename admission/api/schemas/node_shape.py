"""The schema of NodeShape: what a node would be like that is not there yet, how many there may be, what one costs."""

from admission.api.capacity.node_shapes import MOST_LABELS, MOST_NODES, MOST_RESOURCES, MOST_SLICES
from admission.api.schemas import fields, kubernetes
from admission.api.schemas.fields import Schema

COLUMNS = (
    fields.column("Max", "integer", ".spec.maxCount", "How many nodes of the shape there may be."),
    fields.column("Price", "string", ".spec.pricePerHour", "What a node costs per hour."),
    fields.column(
        "Ready", "string", ".status.conditions[?(@.type=='Ready')].status", "Whether Muster plans with the shape."
    ),
    fields.column(
        "Message", "string", ".status.conditions[?(@.type=='Ready')].message", "Why it is ready or not.", wide=True
    ),
    fields.age(),
)


def schema() -> Schema:
    """Return the schema of a whole NodeShape."""
    return fields.record(
        """A NodeShape says what a node would be like that is not there yet, how many there may be, and what one costs,
        so that Muster can say which nodes a gang waits for. It starts no node.""",
        {"spec": _spec(), "status": _status()},
        required=("spec",),
        rules=(
            fields.rule(
                f"self.metadata.name.size() <= {fields.LONGEST_NAME}",
                f"a shape's name stands in the names of nodes to come: use at most {fields.LONGEST_NAME} characters",
            ),
        ),
    )


def _spec() -> Schema:
    return fields.record(
        "The nodes of the shape.",
        {
            "maxCount": fields.integer(
                """How many nodes of the shape there may be, those that exist included: the most that the autoscaler
                keeps. Example: 16.""",
                minimum=0,
                maximum=MOST_NODES,
            ),
            "pricePerHour": fields.decimal(
                """What a node costs per hour, in the one currency of all shapes. Absent: unknown, and such a node comes
                after those with a price. Examples: 3, "98.32"."""
            ),
            "nodePool": fields.object_name(
                """The NodePool of Karpenter (karpenter.sh/v1) that starts the nodes: they have its name as the label
                karpenter.sh/nodepool, beside matchLabels. While it is not there, not ready, or at its limits, no more
                nodes are planned with. Example: gpu."""
            ),
            "matchLabels": _labels(
                """The labels by which a node is one of the shape; a new one has them, too. Name labels that no other
                node has with these values, as that of a node group of Cluster Autoscaler; required without nodePool.
                Examples: {node.kubernetes.io/instance-type: gpu-h100-8}, {eks.amazonaws.com/nodegroup: gpu}.""",
                minProperties=1,
            ),
            "labels": _labels(
                """More labels of a new node, which pods may select or be spread by. Example:
                {topology.kubernetes.io/zone: a}."""
            ),
            "taints": fields.sequence(
                "The taints of a new node that stay, as pods have to tolerate them.",
                _taint(),
                most=32,
            ),
            "allocatable": _allocatable(),
            "resourceSlices": fields.sequence(
                """The devices that the drivers of a new node publish, as in the ResourceSlices of such a node. The
                slices of one driver are one pool, named like the node.""",
                _slice(),
                most=MOST_SLICES,
            ),
        },
        required=("maxCount", "allocatable"),
        rules=(
            fields.rule(
                "has(self.matchLabels) || has(self.nodePool)",
                "matchLabels is required: the labels that every node of the shape has, and no other node; or name a"
                " NodePool of Karpenter in nodePool",
            ),
        ),
    )


def _taint() -> Schema:
    return fields.record(
        "One taint of a node.",
        {
            "key": fields.qualified_name("The taint's key. Example: nvidia.com/gpu."),
            "value": fields.text("The taint's value.", maxLength=63, pattern=fields.LABEL_VALUE),
            "effect": fields.choice(
                "What happens to pods without a toleration.", "NoSchedule", "PreferNoSchedule", "NoExecute"
            ),
        },
        required=("key", "effect"),
    )


def _labels(description: str, **constraints: int) -> Schema:
    value = fields.text("The value of the label.", maxLength=63, pattern=fields.LABEL_VALUE)
    return fields.mapping(description, value, most=MOST_LABELS) | constraints


def _allocatable() -> Schema:
    return fields.ruled(
        fields.mapping(
            """What a new node has for pods, as in `status.allocatable` of such a node, less what pods of DaemonSets
            request there. Example: {cpu: 96, memory: 1000Gi, pods: 110}.""",
            fields.quantity("An amount of the resource. Examples: 96, 1000Gi."),
            most=MOST_RESOURCES,
        )
        | {"minProperties": 1},
        fields.rule(
            "self.all(name, type(self[name]) == int ? self[name] >= 0 : !self[name].startsWith('-'))",
            "must not be negative; write what a node has for pods, 0 for none",
        ),
    )


def _slice() -> Schema:
    name = {"minLength": 1, "maxLength": 63}
    return fields.record(
        "Devices of one driver, or the counters that they share.",
        {
            "driver": fields.object_name("The driver. Example: gpu.example.com."),
            "devices": _as_in_a_slice(
                "The devices", fields.text("The device's name. Example: gpu-0.", **name), most=128
            ),
            "sharedCounters": _as_in_a_slice(
                "The counter sets of the pool", fields.text("The counter set's name.", **name), most=8
            ),
        },
        required=("driver",),
        rules=(
            fields.rule(
                "has(self.devices) != has(self.sharedCounters)",
                "a slice has devices or sharedCounters, not both: write two slices of the driver",
            ),
        ),
    )


def _as_in_a_slice(things: str, name: Schema, *, most: int) -> Schema:
    """Return a list of things of a ResourceSlice, of which the name alone is described."""
    kept = "Kept as it is written, in the form of resource.k8s.io/v1."
    item = fields.open_record(kept, {"name": name}, required=("name",))
    return fields.sequence(f"{things}, in the form of a ResourceSlice's.", item, most=most)


def _status() -> Schema:
    return fields.record(
        "Whether Muster plans with the shape, and what is seen of its nodes. Written by Muster only.",
        {
            "observedGeneration": kubernetes.generation(),
            "conditions": kubernetes.conditions(
                """Ready: Muster plans with the shape; when False, the message names the field and what is wrong. Up:
                nodes of the shape are up; the message says how many; when False, its reason says whether one was up
                before (NoNodes, since then) or not (NeverUp). Matches: these have at least what the shape says, and are
                of no other one; when False, the message names nodes and what they lack. NodePool: the NodePool that is
                named is there and ready, and how many nodes it lets come; Unknown where NodePools cannot be read."""
            ),
        },
    )
