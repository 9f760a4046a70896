"""Routes about messages: browse, follow, send, take, and act on them; and traces of connections."""
