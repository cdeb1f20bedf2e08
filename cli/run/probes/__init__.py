"""What is sampled beside a database during a run: CPU, memory, disks, network, background load."""
