"""CEL as kube-scheduler evaluates it on devices: selectors of claims and classes, meters' selectors and prices.

`programs` is what callers need. Behind it: text → tokens (`lexing`) → nodes (`parsing`) → types (`checking`) → closures
over native values (`compiling`). No evaluator of celpy is used, only its grammar.
"""

from admission.dra.cel import environments, programs

__all__ = ["environments", "programs"]
