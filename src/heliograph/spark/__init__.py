"""The only package that imports pyspark: session, slots, link, slot task."""
