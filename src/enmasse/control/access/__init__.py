"""Access to the API: accounts, roles and rights."""
