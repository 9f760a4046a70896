"""Address spaces: their plans, quotas, and the objects that belong to them."""
