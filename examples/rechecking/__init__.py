"""The parts of ``recheck.py`` that recount results. Standard library only, nothing of kvg."""
