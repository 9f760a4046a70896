"""Messages become columns: JSON, CBOR, Avro, SenML, text and raw bytes; what is none of these is kept and reported.

``decode`` gives rows with ``_problem``; ``good`` and ``bad`` separate them.
"""

from enmasse.pipeline.decoding.relations import bad, decode, good

__all__ = ["bad", "decode", "good"]
