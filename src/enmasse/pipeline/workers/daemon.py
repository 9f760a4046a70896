"""Spark's daemon of Python workers, with what they need loaded: its forks share that memory, and start at once.

python -m enmasse.pipeline.workers.daemon pyspark.worker
"""

from __future__ import annotations

import gc

import pandas as pd  # noqa: F401  # loaded for the forks, as those below
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import enmasse.pipeline.sink.writers
import enmasse.pipeline.source.data_source  # noqa: F401

if __name__ == "__main__":
    # Else a collection in a fork writes to each page that holds objects, and so copies it.
    gc.freeze()
    manager()
