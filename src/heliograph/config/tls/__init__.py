"""Java's security settings (stores, JAAS, cipher names, OAuth) for clients that are not Java.

Begin at `java_security`. May import `config` beside it.
"""
