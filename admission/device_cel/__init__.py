"""CEL expressions over devices, evaluated exactly as kube-scheduler does: selectors of claims, classes, meters; prices.

`environment` declares the variable `device` for a release and its feature gates. `programs` compiles an expression over
it; common ones also become a loop over a slice (`vectorized`), which `bitsets` runs before the interpreter. `limits`
checks expressions that no API server has validated; `lint` warns of those that do not mean what they seem to;
`selector_findings` keeps what both say of a claim's.
"""

__all__ = ["bitsets", "environment", "limits", "lint", "parse_cache", "programs", "selector_findings"]
