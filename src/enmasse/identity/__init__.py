"""Users, logins, permissions and roles. Pure: files and sockets belong to the callers."""
