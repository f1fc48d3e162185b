"""``kvg bench``: what kvg promises, measured on this machine."""
