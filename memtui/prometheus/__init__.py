"""Ranks as a Prometheus server knows them: its query API, and rows and sessions made of its samples."""
