"""The story `heliograph demo` tells: real clusters, real records, a check at the end."""
