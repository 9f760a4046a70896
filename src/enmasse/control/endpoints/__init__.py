"""Endpoints of spaces: hosts, ports, certificates, exports."""
