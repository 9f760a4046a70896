"""STOMP's connections and links, and its messages to AMQP's sections and back."""
