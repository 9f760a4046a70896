"""The runner: one process per space that keeps the space's pipelines running."""
