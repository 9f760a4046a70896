"""The HTTP API in the Kubernetes conventions."""
