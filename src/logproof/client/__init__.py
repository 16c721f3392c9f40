"""The client: a URL becomes a connection, and a Request becomes a checked Call over it."""
