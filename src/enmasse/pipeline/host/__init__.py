"""The process beside control that runs the pipelines: a runner for each space, statuses, queries, logs."""
