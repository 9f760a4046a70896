"""Public tools for tests: contract suites, storage in memory, a manual clock, joined engines, links in memory."""
