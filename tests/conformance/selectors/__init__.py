"""Random selectors of kinds that compilers easily answer differently, asked of Kubernetes' own compiler and of ours."""
