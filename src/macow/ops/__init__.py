"""The heavy arithmetic: plain torch as the specification, kernels beside it."""
