"""The Common Expression Language, evaluated exactly as kube-scheduler does (cel-go v0.26, Kubernetes' libraries).

`programs` compiles expressions over `device` (selectors of claims, classes and meters; prices), and `bitsets` evaluates
them on all devices of a slice. `expressions` is for other variables, such as those of a ClaimPolicy's rules; `limits`
checks expressions that no API server has validated; `lint` warns of those that do not mean what they seem to. The
stages are: source text → tokens (`lexer`) → nodes (`parser`) → types (`type_checker`) → closures over native values
(`interpreter`), which track their cost (`runtime_cost`) unless `static_cost` proves it small. Common selectors also
become a loop over a slice (`vectorized`). Of celpy, only the grammar is used, never an evaluator.
"""

from admission.cel import environment, programs

__all__ = ["bitsets", "core", "environment", "eval", "expressions", "limits", "lint", "programs", "syntax"]
