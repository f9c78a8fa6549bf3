"""The schema of references: what phrases of a status stand for, without names of objects of other namespaces."""

from admission.api.schemas import fields
from admission.api.schemas.fields import Schema
from admission.api.values.references import LISTED, Kind


def schema(field: str, *, detail: str = "The key of `details` that has the same objects.") -> Schema:
    """Return the references of a field. detail: what the key `detail` of a reference says."""
    referent = fields.record(
        "An object; of another namespace it has no name.",
        {
            "kind": fields.text(f"What it is, one of {', '.join(Kind)}.", minLength=1, maxLength=64),
            "name": fields.text("Its name, if it is of this namespace.", maxLength=253),
            "uid": fields.text("Its UID, by which readers that may read it find its name.", maxLength=128),
            "gang": fields.text("The gang of a claim, if it is of this namespace.", maxLength=253),
            "gangUID": fields.text("The UID of the Gang of a claim.", maxLength=128),
            "queue": fields.text("The queue of the gang.", maxLength=253),
            "devices": fields.integer("How many devices it holds of those that are missing.", minimum=0),
            "note": fields.text("What is said of it beside its name.", maxLength=317),
            "count": fields.integer("How many objects of the kind and queue this stands for. Absent: one.", minimum=1),
        },
        required=("kind",),
    )
    return fields.sequence(
        f"What phrases of `{field}` stand for; `muster why` has the names of what its user may read.",
        fields.record(
            "A phrase, and the objects that it stands for.",
            {
                "text": fields.text("The phrase.", maxLength=1024),
                "detail": fields.text(detail, maxLength=64),
                "count": fields.integer("How many objects there are, if more than are listed.", minimum=1),
                "objects": fields.sequence("The objects.", referent, most=LISTED),
            },
            required=("text",),
        ),
        most=16,
    )
