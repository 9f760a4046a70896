"""Messages become columns: JSON, CBOR, Avro, Protobuf, SenML, text and bytes; what is none of these is kept and told.

``decode`` and ``decode_registered`` give rows with ``_problem``; ``good`` and ``bad`` separate them, ``filled`` and
``unfailing`` do something else with those that do not fit, and ``drift_counts`` tells what does not.
"""

from enmasse.pipeline.decoding.relations import (
    BAD_ROWS,
    COUNT_OF,
    EXAMPLE_OF,
    bad,
    decode,
    decode_registered,
    drift_counts,
    filled,
    good,
    no_records,
    unfailing,
    with_tombstones,
)

__all__ = [
    "BAD_ROWS",
    "COUNT_OF",
    "EXAMPLE_OF",
    "bad",
    "decode",
    "decode_registered",
    "drift_counts",
    "filled",
    "good",
    "no_records",
    "unfailing",
    "with_tombstones",
]
