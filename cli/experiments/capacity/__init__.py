"""The highest rate that a database holds: limits, the search for it, the runs, the answer."""
