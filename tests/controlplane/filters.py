"""Asks kube-scheduler's own framework which nodes its filters leave to each pod of a gang, without a cluster around it.

The README beside this file describes the questions, worlds of plain manifests, and the answers.
"""

from tests.controlplane import oracles


class Oracle(oracles.Oracle):
    """One running scheduler."""

    PROGRAM = "filters"
