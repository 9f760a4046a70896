"""Tables of databases: batches are written into them, and join them."""
