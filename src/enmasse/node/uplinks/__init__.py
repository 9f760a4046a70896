"""The node's connections to other messaging services, as connectors of spaces declare them."""
