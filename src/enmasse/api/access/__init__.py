"""Authentication, sessions, authorization, accounts and the audit log of the API."""
