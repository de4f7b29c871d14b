"""The commands of `heliograph`: options in, tables or JSON out, one module a command.

Begin at `app`, which lists them. A command parses, calls one feature and renders what came back; it
decides nothing. May import everything.
"""
