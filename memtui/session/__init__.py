"""What the viewer knows about one process: its identity, histories, events, driver and host readings."""
