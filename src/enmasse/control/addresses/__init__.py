"""Addresses and their plans: from the declaration to the nodes that serve them."""
