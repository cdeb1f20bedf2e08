"""Makes runs: experiments, campaigns, executors, probes, faults, installation."""
