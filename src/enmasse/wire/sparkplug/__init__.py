"""Sparkplug B, as Eclipse's specification 3.0 has it: names, payloads, and the sessions of edge nodes."""
