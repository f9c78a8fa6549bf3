"""The rules of Kubernetes' allocator, one module for each kind; `tests.property.checker` asks them all."""
