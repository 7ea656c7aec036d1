"""What runs on one machine and its GPUs, exposed for Prometheus. Only this package knows prometheus_client."""
