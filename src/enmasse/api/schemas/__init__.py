"""The schema registry over HTTP, as clients of Confluent's speak to it."""
