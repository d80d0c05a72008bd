"""Which parameters are updated, by which rule, at which rate."""
