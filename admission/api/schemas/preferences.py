"""The schema of a Queue's preferences among kinds of devices."""

from admission.api.muster.preferences import MOST_KINDS, WhenCanBorrow
from admission.api.schemas import fields
from admission.api.schemas.fields import Schema


def preferences() -> Schema:
    """Return the schema of spec.preferences."""
    return fields.record(
        """In which order kinds of devices are tried for what a claim leaves open: a device class with devices of
        several kinds, or the alternatives of firstAvailable. All claims of a gang that leave it open get one kind: the
        first of which there is a plan and quota. Quota by kind is a Meter for each kind, with the same selector.
        Absent: any device of the classes will do. Does not count with placement: Count.""",
        {
            "kinds": fields.sequence(
                """The kinds, the preferred one first. Devices of their classes that are of no kind are not given to
                gangs of this queue.""",
                _kind(),
                most=MOST_KINDS,
                keys=("name",),
                minItems=1,
            ),
            "whenCanBorrow": fields.choice(
                """What happens where the gang fits a kind, but only if the queue borrows for it, of a meter that counts
                the kinds' classes. Borrow: it starts there (Kueue's MayStopSearch). TryNext: the other kinds are tried
                first; where none fits within the quota, the kind is taken with which the nearest lender suffices
                (Kueue's TryNextFlavor). Default: Borrow.""",
                *WhenCanBorrow,
                default=WhenCanBorrow.BORROW,
            ),
        },
        required=("kinds",),
    )


def _kind() -> Schema:
    return fields.record(
        "A kind of devices.",
        {
            "name": fields.text("What messages call it. Example: a100.", minLength=1, maxLength=63),
            "deviceClasses": fields.sequence(
                "The DeviceClasses whose requests it serves. Example: [gpu.example.com].",
                fields.object_name("The name of a DeviceClass. Example: gpu.example.com."),
                most=64,
                unique=True,
                minItems=1,
            ),
            "selector": fields.cel(
                """A CEL expression over `device`; only devices for which it is true are of the kind. Absent: all of the
                classes. Example: device.attributes['gpu.example.com'].model == 'A100'."""
            ),
        },
        required=("name", "deviceClasses"),
    )
