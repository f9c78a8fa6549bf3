"""The schema of `spec.provisioning` of a Queue."""

from admission.api.capacity.node_provision import LONGEST_PARAMETER, MOST_PARAMETERS, ProvisioningMode
from admission.api.schemas import fields
from admission.api.schemas.fields import Schema


def block() -> Schema:
    """Return the schema."""
    return fields.record(
        "How the queue comes to nodes that are not there yet and that a NodeShape describes.",
        {
            "mode": fields.choice(
                """Who is asked for the nodes that a gang needs, once the queue has quota and budget for it. None:
                nobody, what is needed is said. Pods: autoscalers that start nodes for pending pods, as Karpenter and
                Cluster Autoscaler do. Quota is reserved, and the gates of all pods of the gang are opened towards the
                shapes. ProvisioningRequest: Cluster Autoscaler, by one ProvisioningRequest for each gang; the gates are
                opened when it says that the capacity is there. Default: None.""",
                *ProvisioningMode,
                default=ProvisioningMode.NONE,
            ),
            "timeout": fields.duration(
                """How long a gang for which nodes were asked may take until all its pods run, in place of startTimeout.
                After that it is evicted as a whole, its quota is returned, and it waits again. Default: 30m.""",
                default="30m",
            ),
            "class": fields.object_name(
                """The provisioningClassName of the ProvisioningRequests; required with that mode, and only with it.
                best-effort-atomic-scale-up.autoscaling.x-k8s.io starts nodes for the whole gang or none;
                check-capacity.autoscaling.x-k8s.io only asks whether there is room; clouds have more."""
            ),
            "parameters": fields.mapping(
                """The parameters of the ProvisioningRequests, by name, as their class documents them. Example:
                {ValidUntilSeconds: "1200"}.""",
                fields.text("A value, as text.", maxLength=LONGEST_PARAMETER),
                most=MOST_PARAMETERS,
            ),
        },
        rules=(
            fields.rule(
                """(has(self.mode) && self.mode == 'ProvisioningRequest') == has(self.class)""",
                """class and mode ProvisioningRequest go together: name the class of the requests, or choose another
                mode""",
                fieldPath=".class",
            ),
        ),
        default={},
    )
