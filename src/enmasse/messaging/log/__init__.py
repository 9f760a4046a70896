"""The log that stored addresses write: frames, rows, sequences and what a failed commit undoes."""
