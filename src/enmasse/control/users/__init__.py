"""Messaging users and realms: from the declaration to nodes and identity providers."""
