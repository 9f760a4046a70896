"""Drivers behind the control plane's ports: nodes, a Keycloak, certificates, and the supervision of processes."""
