"""The engine-core side: constraints of requests, mask rows for the scheduler, commits and their records."""
