"""What is known of the protection of devices."""

from admission.scheduling.placement import protection
from admission.scheduling.placement.protection import Protection, Protections


def protections(*named: Protection, rest: Protection = protection.NOTHING.rest) -> Protections:
    """Return the protections of some drivers, and of all others."""
    return Protections(named={one.driver: one for one in named}, rest=rest)
