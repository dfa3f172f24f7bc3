"""What an operator sees of constrained requests, in the API process: one log line each, and Prometheus metrics."""
