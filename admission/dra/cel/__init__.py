"""CEL as kube-scheduler evaluates it on devices: selectors of claims and classes, meters' selectors and prices, rules.

`programs` and `columns` are what callers need, `expressions` for texts over other variables than `device`, `admitting`
for texts that no API server has checked, `traps` for those that do not mean what they seem to. Behind them: text →
tokens (`lexing`) → nodes (`parsing`) → types (`checking`) → closures over native values (`compiling`), which count
their cost (`counting`) where `estimating` cannot prove it small; and for common texts a loop over a slice (`sweeps`).
No evaluator of celpy is used, only its grammar.
"""

from admission.dra.cel import environments, programs

__all__ = ["environments", "programs"]
