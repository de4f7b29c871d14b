"""Which topics a flow mirrors, what they are called on the target, and what the target lacks.

All decisions without I/O, but for `observe`, which reads the clusters they are made from. Begin at
`selection`. May import `broker` and below.
"""
