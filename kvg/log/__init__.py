"""The store's Merkle log: RFC 6962 hashing, C2SP tiles, checkpoints and receipts."""
