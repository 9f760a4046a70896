"""Projects of the IoT layer: their addresses, and their tenants in the device registry."""
