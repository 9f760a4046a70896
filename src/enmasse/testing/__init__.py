"""Public tools for tests: contract suites, in-memory storage, manual clock."""
