"""The devices' side of a node: who a device is, and what it sends and is sent, whatever protocol it speaks."""
