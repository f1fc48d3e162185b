"""What push, fetch, pull and clone share: reading a remote, receiving, sending."""
