"""The movable context: a corpus in blocks that each fit the model's window."""
