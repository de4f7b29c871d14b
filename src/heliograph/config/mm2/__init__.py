"""MirrorMaker 2's configuration format: properties, keys, scopes, precedence, translation.

Begin at `translate`. May import `config` beside it.
"""
