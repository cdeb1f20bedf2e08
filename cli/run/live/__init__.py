"""A command seen while it runs: as a page in a browser, and by Prometheus."""
