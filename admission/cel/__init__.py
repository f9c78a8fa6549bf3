"""CEL as kube-scheduler evaluates it on devices: selectors of claims and classes, meters' selectors and prices, rules.

`programs` and `bitsets` are what callers need, `expressions` for texts over other variables than `device`, `limits` for
texts that no API server has checked, `lint` for those that do not mean what they seem to. Behind them: text → tokens
(`lexer`) → nodes (`parser`) → types (`type_checker`) → closures over native values (`interpreter`), which count their
cost (`runtime_cost`) where `static_cost` cannot prove it small; and for common texts a loop over a slice
(`vectorized`). No evaluator of celpy is used, only its grammar.
"""

from admission.cel import environment, programs

__all__ = ["bitsets", "core", "environment", "eval", "expressions", "limits", "lint", "programs", "syntax"]
