"""Supervision of pipelines that run: supervisors of pipelines, queries and backfills; checkpoints and progress."""
