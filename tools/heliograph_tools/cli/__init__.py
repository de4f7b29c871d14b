"""The commands `local`, `demo` and `bench`, as `heliograph.cli.app` lists them."""
