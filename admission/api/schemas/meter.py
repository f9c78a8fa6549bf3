"""The schema of Meter: the rules that turn devices, and what pods request of nodes, into amounts of a unit."""

from admission.api.muster.meters import CPU, HUGE_PAGES, MOST_FACTOR, NATIVE, AdminAccess, Measure
from admission.api.schemas import fields, kubernetes
from admission.api.schemas.fields import Schema

COLUMNS = (
    fields.column("Unit", "string", ".spec.unit", "The unit, for people."),
    fields.column(
        "Ready", "string", ".status.conditions[?(@.type=='Ready')].status", "Whether Muster can count with it."
    ),
    fields.column(
        "Message", "string", ".status.conditions[?(@.type=='Ready')].message", "Why it is ready or not.", wide=True
    ),
    fields.age(),
)

MOST_CLASSES = 64 * 64
"""The most classes that the sources of a meter name together."""


def schema() -> Schema:
    """Return the schema of a whole Meter."""
    return fields.record(
        """A Meter says what is counted, for quotas, budgets and the ledger: claims, devices, bytes of device memory,
        units of a counter, a price, or what pods request of nodes, such as CPU. Several meters may charge one device or
        resource.""",
        {"spec": _spec(), "status": _status()},
        required=("spec",),
        rules=(
            fields.rule(
                f"self.metadata.name.size() <= {fields.LONGEST_NAME}",
                f"a meter's name stands in metrics and in the ledger: use at most {fields.LONGEST_NAME} characters",
            ),
        ),
    )


def _spec() -> Schema:
    return fields.record(
        "What is counted.",
        {
            "unit": fields.text(
                "The unit, for people; amounts are whole numbers of it. Examples: GPU, bytes, EUR.",
                minLength=1,
                maxLength=32,
            ),
            "sources": fields.sequence(
                "What charges the meter. A device that several sources match is charged by each of them.",
                _source(),
                most=64,
            ),
            "extendedResources": fields.sequence(
                """Extended resources of pods that charge the meter, 1 for each unit, so that pods that use a device
                plugin and pods that use claims draw on the same quota. Example: [nvidia.com/gpu].""",
                fields.ruled(
                    fields.qualified_name("The name of an extended resource. Example: nvidia.com/gpu."),
                    fields.rule(
                        "self.contains('/') && !self.contains('kubernetes.io/')",
                        "must be the name of an extended resource, with the domain of a vendor, as in nvidia.com/gpu",
                    ),
                ),
                most=32,
                unique=True,
            ),
            "resources": fields.sequence(
                """What pods request of nodes and the meter counts, as kube-scheduler does: containers and sidecars, or
                an init container that needs more, pod-level requests, overhead. Of each pod the exact sum is charged,
                rounded up once. Example: [{name: cpu}, {name: memory, per: 4Gi}].""",
                _resource(),
                most=64,
                keys=("name",),
            ),
            "adminAccess": fields.choice(
                """Whether requests with adminAccess, which share devices with their users for maintenance, are charged.
                Default: Free.""",
                *AdminAccess,
                default=AdminAccess.FREE,
            ),
        },
        rules=(
            fields.rule(
                """(has(self.sources) && self.sources.size() > 0) ||
                (has(self.extendedResources) && self.extendedResources.size() > 0) ||
                (has(self.resources) && self.resources.size() > 0)""",
                "a meter without sources counts nothing: add an entry to sources, resources or extendedResources",
                fieldPath=".sources",
            ),
            fields.rule(
                """!has(self.resources) || !has(self.extendedResources) ||
                self.resources.all(r, !(r.name in self.extendedResources))""",
                "a resource may be in one of resources and extendedResources, not in both",
                fieldPath=".resources",
            ),
        ),
    )


def _resource() -> Schema:
    natives = ", ".join(f"'{name}'" for name in NATIVE)
    return fields.record(
        "A resource, and what it costs: factor for every per of it.",
        {
            "name": fields.ruled(
                fields.qualified_name(
                    """The resource. Examples: cpu, memory, ephemeral-storage, pods (1 for each pod), hugepages-2Mi,
                    nvidia.com/gpu."""
                ),
                fields.rule(
                    f"""self in [{natives}] || self.matches('{HUGE_PAGES}') ||
                    (self.contains('/') && !self.contains('kubernetes.io/'))""",
                    f"""must be one of {", ".join(NATIVE)}, a size of huge pages as in hugepages-2Mi, or an extended
                    resource with the domain of a vendor, as in nvidia.com/gpu""",
                ),
            ),
            "per": fields.step(
                """How much of it costs factor, in cores of cpu, which may be thousandths, and in bytes or units of all
                else. Default: 1. Examples: 1m, 4Gi.""",
                default=1,
            ),
            "factor": fields.integer(
                "What the meter is charged for every per. Default: 1. Example: 4.",
                minimum=1,
                maximum=MOST_FACTOR,
                default=1,
            ),
        },
        required=("name",),
        rules=(
            fields.rule(
                f"self.name == '{CPU}' || type(self.per) == int || !self.per.endsWith('m')",
                f"only {CPU} has thousandths: write per in whole units, as in 1 or 4Gi",
                fieldPath=".per",
            ),
        ),
    )


def _source() -> Schema:
    return fields.record(
        f"Devices that charge the meter, and how much. Exactly one of {', '.join(Measure)}.",
        {
            "deviceClasses": fields.sequence(
                "The DeviceClasses whose requests are charged. Example: [gpu.example.com].",
                fields.object_name("The name of a DeviceClass. Example: gpu.example.com."),
                most=64,
                unique=True,
                minItems=1,
            ),
            "selector": fields.cel(
                """A CEL expression over `device`; only devices for which it is true are charged. Absent: all of the
                classes. Example: device.attributes['gpu.example.com'].model == 'H100'."""
            ),
            "claims": fields.record(
                "Charges 1 for each ResourceClaim that has a request for one of the classes. Written as {}.", {}
            ),
            "count": fields.record("Charges 1 for each device. Written as {}.", {}),
            "capacity": _capacity(),
            "counter": _counter(),
            "expression": _expression(),
        },
        required=("deviceClasses",),
        rules=(
            fields.rule(
                f"[{', '.join(f'has(self.{measure})' for measure in Measure)}].exists_one(given, given)",
                f"a source counts in exactly one way: give one of {', '.join(Measure)}",
            ),
        ),
    )


def _capacity() -> Schema:
    return fields.record(
        """Charges what the allocation consumes of a capacity of the device, or the whole capacity where the device is
        not shared.""",
        {
            "name": fields.qualified_name(
                """The capacity's name; without a domain it is the driver's. Examples: memory,
                gpu.example.com/memory."""
            )
        },
        required=("name",),
    )


def _counter() -> Schema:
    return fields.record(
        "Charges what the device consumes of its pool's shared counters, as partitions of one GPU do.",
        {
            "counterSet": fields.object_name(
                "The counter set. Absent: the sum over all sets that the device consumes. Example: gpu-0-counters."
            ),
            "name": fields.object_name("The counter's name. Example: memory."),
        },
        required=("name",),
    )


def _expression() -> Schema:
    return fields.record(
        "Charges what a CEL expression returns for each device: a price.",
        {
            "cel": fields.cel(
                """A CEL expression over `device` that returns an integer ≥ 0. Example:
                device.attributes['gpu.example.com'].model == 'H100' ? 4 : 1."""
            )
        },
        required=("cel",),
    )


def _status() -> Schema:
    return fields.record(
        "Whether the meter works, as Muster last saw it. Written by Muster only.",
        {
            "observedGeneration": kubernetes.generation(),
            "conditions": kubernetes.conditions(
                "Ready: Muster counts with the meter; when False, the message names the source and what is wrong."
            ),
            "outsideQueues": fields.sequence(
                """Devices of the meter's classes that pods outside every queue hold: they are on nobody's quota. Absent
                where there are none.""",
                fields.record(
                    "The devices of one class.",
                    {
                        "deviceClass": fields.object_name(
                            "The DeviceClass that was asked for. Example: gpu.example.com."
                        ),
                        "devices": fields.integer("How many devices are held.", minimum=1),
                    },
                    required=("deviceClass", "devices"),
                ),
                most=MOST_CLASSES,
                keys=("deviceClass",),
            ),
        },
    )
