"""What the commands that measure do: plan their runs, make them, sum up."""
