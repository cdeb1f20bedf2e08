"""What is asked for, typed and checked: config, targets, workloads, runs."""
