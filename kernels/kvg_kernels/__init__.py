"""Operators whose result for a token depends on that token's own history and on nothing else.

Tensors in, tensors out. One folder per operator: ``reference.py`` is the definition in plain
torch, ``cpu.py`` the fast form for a CPU, and the folder's ``__init__`` chooses between them.
"""

VERSION = "cpu-1"
"""Names the bits that these operators give; another version is another engine."""
