"""The part of a backup that pipelines leave on a disk, and what comes of it when it is restored."""
