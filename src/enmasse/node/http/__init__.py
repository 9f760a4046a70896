"""HTTP's connections and requests, and its messages to AMQP's sections and back."""
