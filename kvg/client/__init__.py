"""The client of resident sessions: where their sockets lie, and how one is spoken to.

Light on purpose: a graft through a session costs little more than starting the program.
"""
