"""The schema registry: subjects, versions and compatibility, in a file of its own."""
