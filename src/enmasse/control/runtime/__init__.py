"""The controller runtime: work queue, statuses, events, garbage collection."""
