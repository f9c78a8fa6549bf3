"""The Common Expression Language, evaluated exactly as Kubernetes does (cel-go v0.26, Kubernetes' libraries).

The stages are: source text → tokens (`lexer`) → nodes (`parser`) → types (`type_checker`) → closures over native values
(`interpreter`), which track their cost (`runtime_cost`) unless `static_cost` proves it small. `front_end` goes as far
as the types; `expressions` compiles over the caller's variables; `limits` says why an expression is inadmissible. Of
celpy, only the grammar is used, never an evaluator.
"""

__all__ = [
    "check",
    "core",
    "cost",
    "environment",
    "eval",
    "expressions",
    "front_end",
    "library",
    "limits",
    "syntax",
]
