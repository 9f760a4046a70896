"""AMQP management of a node: entity types, their operations, and what users may ask of their space."""
