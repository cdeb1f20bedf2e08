"""Makes runs: experiments, campaigns, executors, probes, faults and installation."""
