"""The base of every kind: metadata, conditions, names, quantities, CRDs, errors of validation."""
