"""kvg: git and cosign for KV caches."""

__version__ = "0.1.0"
