"""The kinds of resources: a module for each, with its fields and their validation."""
