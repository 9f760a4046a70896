"""Messages become columns: JSON, CBOR, Avro, SenML, text and raw bytes; what is none of these is kept and told.

``decode`` gives rows with ``_problem``; ``good`` and ``bad`` tell them apart.
"""

from enmasse.pipeline.decoding.relations import bad, decode, good

__all__ = ["bad", "decode", "good"]
