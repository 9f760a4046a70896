"""MQTT's connections, publishers and subscribers, and its messages to AMQP's sections and back."""
