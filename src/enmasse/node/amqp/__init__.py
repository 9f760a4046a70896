"""AMQP 1.0 at a node: connections, their links and transactions, and what is kept for links that come back."""
