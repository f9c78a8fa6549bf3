"""What a process of Muster imports and prepares before it does anything: forks of it start in a moment.

Imported by the process that `controlplane.processes` forks from.
"""

from admission import app, controller_app
from admission.cel.syntax import parser
from admission.cli.serve import command

__all__ = ["app", "command", "controller_app"]

parser.prepare()
