"""The rows of the attack table, by what they are done to."""
