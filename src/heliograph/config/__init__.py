"""The model, and `mm2.properties` translated into it. Loaded on the driver, read anywhere."""
