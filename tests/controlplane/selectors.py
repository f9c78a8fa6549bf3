"""Asks the compiler of device selectors that kube-scheduler has linked in, without a cluster around it.

A question is a record of the conformance corpus (`features`, `mode`, `expression`, `device`), the answer what such a
record expects; `compile` may be `panic`, too.
"""

from tests.controlplane import oracles


class Oracle(oracles.Oracle):
    """One running compiler."""

    PROGRAM = "selectors"
