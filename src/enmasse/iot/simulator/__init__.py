"""A simulated fleet of devices, over MQTT, HTTP and AMQP: for demonstrations, tests and benchmarks."""
